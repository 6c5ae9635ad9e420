"""An `EngineLink` with its engine in this process: commands and events go over the wire, and steps are run whenever
nobody else in the event loop has anything to do."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

from pagedchat import events as ev
from pagedchat.engine.core import EngineCore
from pagedchat.service.commands import AddRequest, AnyCommand, EngineLink
from pagedchat.service.loop import Received
from pagedchat.service.wire import FrameWriter, NotSendableError, command_reader, event_reader
from tests.engine.checks import assert_mirror_equals
from tests.fakes import FakeModelRunner
from tests.service.engine_rig import EngineRig


class LinkedEngine(EngineLink):
    """The rig behind a link.

    Args:
        runner: of the rig's engine.
        loaded: what else the rig takes.
    """

    def __init__(self, runner: FakeModelRunner | None = None, **loaded: Any) -> None:
        self.rig = EngineRig(runner, **loaded)
        self.sent: list[AnyCommand] = []
        self.may_run = asyncio.Event()
        """Cleared, no step is run."""
        self.may_run.set()
        self._writer, self._commands, self._events = FrameWriter(), command_reader(), event_reader()
        self._queue: asyncio.Queue[ev.EngineEvent | None] = asyncio.Queue()
        self._num_told = 0
        self._woken = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    @property
    def core(self) -> EngineCore:
        return self.rig.core

    async def start(self) -> None:
        if self._task is None:
            self._task = asyncio.create_task(self._run())
            self.say(self.rig.loaded.info)

    async def restart(self) -> None:
        raise NotImplementedError

    async def switch(self, model: str) -> None:
        raise NotImplementedError

    def beside(self, model: str) -> EngineLink:
        raise NotImplementedError

    def send(self, command: AnyCommand) -> None:
        self.sent.append(command)
        try:
            frame = bytes(self._writer.frame(command))
        except NotSendableError as error:  # as the client does it
            assert isinstance(command, AddRequest)
            self.say(ev.RequestRefused(command.request_id, error.message, error.hint, "value"))
            return
        [received] = self._commands.feed(frame)
        self.rig.loop.turn(Received(received, self.rig.clock()))  # type: ignore[arg-type]  # no configuration
        self._tell()
        self._woken.set()

    async def events(self) -> AsyncIterator[ev.EngineEvent]:
        while (event := await self._queue.get()) is not None:
            yield event

    async def close(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait({self._task})
            if not self._task.cancelled():
                self._task.result()
        self._queue.put_nowait(None)

    def say(self, event: ev.EngineEvent) -> None:
        """Something that no engine loop says."""
        self._queue.put_nowait(event)

    def assert_at_rest(self, num_sequences: int = 0) -> None:
        """Nothing is left of any request, and the mirror has seen it all."""
        self.rig.publisher.flush()
        core = self.core
        assert len(core.sequences) == num_sequences
        pool = core.blocks.pool
        assert num_sequences or pool.num_in_use == 0
        core.check_integrity()
        mirror = self.rig.mirror()
        if mirror.last is not None:  # else nothing has ever happened
            assert_mirror_equals(mirror, core)

    async def _run(self) -> None:
        while True:
            await self.may_run.wait()
            self.rig.clock.advance(0.001)
            seconds = self.rig.loop.turn(None)
            self._tell()
            if seconds is None:
                self._woken.clear()
                await self._woken.wait()
            await asyncio.sleep(0)

    def _tell(self) -> None:
        events = self.rig.events
        for event in events[self._num_told :]:
            for heard in self._events.feed(bytes(self._writer.frame(event))):
                self._queue.put_nowait(heard)
        self._num_told = len(events)
