"""The UI process, simulated: the real client, desk, view and recorder; what they hold is checked as it comes."""

import asyncio
from collections import Counter
from pathlib import Path
from random import Random
from typing import Protocol

from pagedchat import events as ev
from pagedchat.cache_events import FIRST_OF_PROGRAMS
from pagedchat.config import EngineConfig
from pagedchat.engine.core import EngineCore
from pagedchat.engine.limits import EngineLimits
from pagedchat.engine.mirror import CacheMirror
from pagedchat.service.client import EngineClient
from pagedchat.trace.reader import read_trace
from pagedchat.trace.recorder import FLUSH_SECONDS, Recorder
from pagedchat.view.chats.desk import ChatDesk
from pagedchat.view.engine_view import EngineView
from pagedchat.view.options import UiOptions
from pagedchat.view.state.invariant import counts_agree
from tests.engine.checks import assert_mirror_equals
from tests.simulation.clock import VirtualLoop
from tests.simulation.disk import Disk, MemoryFile
from tests.simulation.oracle import Oracle
from tests.simulation.program import SimulatedProgram

DRAW_SECONDS = 0.25


class Folded(Protocol):
    """What a UI process makes of the engine's words: all that the inspector shows, or the mirror alone."""

    mirror: CacheMirror | None

    def apply(self, event: ev.EngineEvent) -> None:
        """The next event."""


class MirrorView:
    """The mirror alone, for long runs."""

    def __init__(self) -> None:
        self.mirror: CacheMirror | None = None

    def apply(self, event: ev.EngineEvent) -> None:
        match event:
            case ev.EngineReady():
                self.mirror = CacheMirror(event.num_blocks, event.block_size, event.num_host_blocks)
            case ev.EngineDied():
                self.mirror = None
            case ev.Steps(reports=reports) if self.mirror is not None:
                for report in reports:
                    self.mirror.apply(report)


class SimulatedUi:
    """One life of the UI process.

    Args:
        loop: when things happen.
        choose: what happens.
        limits: of the engine.
        disk: where traces go.
        oracle: knows what every request must get.
        whole: whether everything that an inspector shows is folded.
    """

    def __init__(
        self, loop: VirtualLoop, choose: Random, limits: EngineLimits, disk: Disk, oracle: Oracle, *, whole: bool
    ) -> None:
        self._loop, self._random, self._disk, self._oracle = loop, choose, disk, oracle
        self.limits = limits
        self.client = EngineClient(EngineConfig(), Path("/nowhere"))
        self.client._events.limit = 60  # so that the engine is not listened to now and then
        self.desk = ChatDesk(self.client.send, UiOptions())
        self.program = SimulatedProgram(self.client.send, choose, limits, oracle.letters, oracle.seen)
        self.view: Folded = EngineView() if whole else MirrorView()  # type: ignore[assignment]  # read-only there
        self._recorder = Recorder(Path("run.trace"), clock=loop.time, make_file=self._make_file)
        self.stalled_until = 0.0
        """It takes in no events until then."""
        self.failed = False
        """The engine is not started again by itself."""
        self.ready = False
        self.told: list[tuple[float, int]] = []
        """When how many reports of the present recording had come."""
        self.failure: BaseException | None = None
        """What went wrong while events were taken in."""
        self._tasks = [loop.create_task(self._run()), loop.create_task(self._draw())]

    async def _run(self) -> None:
        events = self.client.events()
        await self.client.start()
        async for event in events:
            if self._loop.time() < self.stalled_until:
                await asyncio.sleep(self.stalled_until - self._loop.time())
            try:
                self._take_in(event)
            except Exception as error:
                self.failure = error
                raise

    async def _draw(self) -> None:
        while True:
            await asyncio.sleep(DRAW_SECONDS)
            self._recorder.keep_up()

    def _take_in(self, event: ev.EngineEvent) -> None:
        """As the bridge to the screens does it."""
        self.view.apply(event)
        self._recorder.apply(event, self.view.mirror, self.desk.labels)
        match event:
            case ev.EngineReady():
                self.ready, self.failed, self.told = True, False, []
            case ev.EngineDied(restarting=restarting):
                self.ready, self.failed = False, not restarting
            case ev.EngineFailed():
                self.ready, self.failed = False, True
            case ev.Steps():
                self._check_counts()
                self.told.append((self._loop.time(), self.view.mirror.num_reports if self.view.mirror else 0))
        self._oracle.hear(event)
        self.program.hear(event)
        asker = next((chat for chat in self.desk if chat.request_id == getattr(event, "request_id", 0)), None)
        self.desk.apply(event)
        self._oracle.check_turn(event, asker)

    def _check_counts(self) -> None:
        mirror = self.view.mirror
        assert mirror is not None
        assert mirror.last is not None
        assert counts_agree(mirror, mirror.last)

    def _make_file(self, path: Path | None, is_first: bool) -> MemoryFile:
        return self._disk.make(path)

    # --- checks -------------------------------------------------------------------------------------

    def check_at_rest(self, core: EngineCore) -> None:
        """Nothing is on its way: the mirror is the engine, and nobody waits."""
        assert self.view.mirror is not None
        if self.view.mirror.last is not None:
            assert_mirror_equals(self.view.mirror, core)
        waiting = [chat.label for chat in self.desk if chat.busy or chat.queue]
        assert not waiting, f"{waiting} wait for replies that never come"
        assert not self.program.asked, f"requests {list(self.program.asked)} wait for what never comes"
        assert all(seq_id < FIRST_OF_PROGRAMS for seq_id in core.sequences)

    def check_trace(self, file: MemoryFile, now: float) -> Counter[str]:
        """A reader finds what was folded, and nothing is lost that is older than the recorder promises."""
        recording = read_trace(file)
        position = recording.end
        due = max([number for at, number in self.told if at <= now - FLUSH_SECONDS - 2 * DRAW_SECONDS], default=0)
        if self._recorder.problem is None and now >= self.stalled_until:
            assert position >= due, f"reports {position} to {due} are lost"
        mirror = recording.mirror_at(position)
        assert mirror.num_reports == position
        if self.view.mirror is not None and position == self.view.mirror.num_reports:
            mirror.last = self.view.mirror.last  # whose times a trace rounds
            assert mirror == self.view.mirror
        return Counter({"traces read": 1, "reports read": position})

    # --- how it ends --------------------------------------------------------------------------------

    async def quit(self) -> None:
        """In order."""
        await self.client.close()
        await self._tasks[0]
        self._stop()
        self._recorder.close()

    def die(self) -> None:
        """By a signal that cannot be caught."""
        self._stop()
        if self.client._supervisor is not None:
            self.client._supervisor.cancel()

    def _stop(self) -> None:
        for task in self._tasks:
            task.cancel()
