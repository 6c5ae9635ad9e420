"""The engine process, simulated: the real loop, chats and core between two pipes, with deaths at any moment.

What `pagedchat.service.child` and `pagedchat.service.process` do with a process, a thread and a socket is done here
with callbacks of a virtual loop.
"""

import asyncio
from collections import Counter
from collections.abc import Callable
from random import Random
from typing import Any

from pagedchat import events as ev
from pagedchat.cache_events import FIRST_OF_PROGRAMS
from pagedchat.config import EngineConfig
from pagedchat.engine.core import EngineCore
from pagedchat.engine.limits import EngineLimits
from pagedchat.engine.output import SchedulerOutput
from pagedchat.engine.sampling_params import SamplingParams
from pagedchat.engine.speculation.draft_model import DraftRunner
from pagedchat.errors import RequestError
from pagedchat.ops.cache.byte_kinds import CacheKind
from pagedchat.service.chats import Chats
from pagedchat.service.commands import AnyCommand, Shutdown
from pagedchat.service.loop import EngineLoop, Inbox, Received
from pagedchat.service.programs import Programs
from pagedchat.service.prompts import PrepareAtOnce, Prepared, Preparer, PromptJob, PromptWorkshop
from pagedchat.service.publisher import Publisher
from pagedchat.service.rendering import Rendered, RenderJob
from pagedchat.service.text_model import TextModel
from pagedchat.service.wire import Configure, FrameWriter, Inbound, WireError, command_reader, event_reader
from tests.simulation.clock import VirtualLoop
from tests.simulation.model import KernelLetters, LetterModel, SmallerModel, info_of, template, tokenizer
from tests.simulation.pipe import Pipe

PLACES = ("begun", "in a move", "moved", "writing", "written")
KILLED, CRASHED = -9, 70


class Killed(BaseException):
    """The process is no more."""


class StepError(Exception):
    """A step failed."""


class LaterRenderer:
    """Writes every prompt after a while, as a process of its own does."""

    def __init__(
        self, text_model: TextModel, loop: VirtualLoop, choose: Random, answer: Callable[[Rendered], None]
    ):
        self._text_model, self._loop, self._random, self._answer = text_model, loop, choose, answer

    def submit(self, job: RenderJob) -> None:
        self._loop.call_later(self._random.choice((0.0, 0.002, 0.3)), self._write, job)

    def _write(self, job: RenderJob) -> None:
        if self._random.random() < 0.02:
            self._answer(Rendered(job, error=RequestError("The template did not finish.")))
        else:
            self._answer(Rendered(job, self._text_model.render(job.command)))


class LaterPreparer:
    """Prepares every prompt of a program after a while, as a thread of its own does."""

    def __init__(
        self, workshop: PromptWorkshop, loop: VirtualLoop, choose: Random, answer: Callable[[Prepared], None]
    ):
        self._workshop, self._loop, self._random, self._answer = workshop, loop, choose, answer

    def submit(self, job: PromptJob) -> Prepared | None:
        self._loop.call_later(self._random.choice((0.0, 0.002, 0.3)), self._prepare, job)
        return None

    def _prepare(self, job: PromptJob) -> None:
        if job.wanted:
            self._answer(self._workshop.prepare(job))


class SimulatedEngine:
    """The child's side.

    Args:
        loop: when things happen.
        choose: what happens.
        limits: of the engine.
        seen: counts what happened.
        tell: hears every event before it is sent, with the engine as it stands then.
        letters: that choose tokens; None: symbols do.
        kind: of the pages of bytes that it keeps besides; None: there are none.
    """

    def __init__(
        self,
        loop: VirtualLoop,
        choose: Random,
        limits: EngineLimits,
        seen: Counter[str],
        tell: Callable[[ev.EngineEvent, EngineCore], None],
        letters: KernelLetters | None,
        kind: CacheKind | None,
    ) -> None:
        self._loop, self._random, self._limits, self._seen, self._tell = loop, choose, limits, seen, tell
        self.exit_code: asyncio.Future[int] = loop.create_future()
        self.runner = LetterModel(limits.num_blocks, limits.block_size, limits.num_host_blocks, letters, kind)
        self.runner.at = self._at
        self.core = EngineCore(
            limits, self.runner, loop.time, draft=self._draft_runner(), first_id=FIRST_OF_PROGRAMS
        )
        self.core.scheduler.drafts.worth = None  # a step of this clock takes no time
        self.frozen_until = 0.0
        """It is stopped until then, as by SIGSTOP."""
        self.fault: tuple[str, type[BaseException]] | None = None
        """Where the next step breaks off, and how."""
        self._reader, self._writer = command_reader(), FrameWriter()
        self._inbox: Inbox = Inbox()
        self._engine_loop: EngineLoop | None = None
        self._out: Pipe
        self._turn_due = False

    def _draft_runner(self) -> DraftRunner | None:
        """A smaller model, where the world has one, which breaks off for good at a fault of its own."""
        limits = self._limits
        if limits.speculation.method != "model":
            return None
        smaller = SmallerModel(limits.num_blocks, limits.block_size)
        smaller.at = self._at_draft
        return DraftRunner(smaller, limits.model_len)

    def connect(self, out: Pipe) -> None:
        """Where it writes to."""
        self._out = out

    @property
    def alive(self) -> bool:
        return not self.exit_code.done()

    @property
    def idle(self) -> bool:
        """Whether it does nothing until a command comes."""
        loop = self._engine_loop
        return (
            self.alive
            and loop is not None
            and self._inbox.empty()
            and not self._turn_due
            and not loop.may_step
            and not loop.chats.awaits_text
            and not loop.programs.awaits_prompts
        )

    # --- what comes in ------------------------------------------------------------------------------

    def receive(self, data: bytes) -> None:
        """Bytes of commands."""
        if not self.alive:
            return
        try:
            for message in self._reader.feed(data):
                self._take(message)
        except WireError:
            self.end(CRASHED)

    def hang_up(self) -> None:
        """The other side is gone: the whole process ends, whatever it is doing."""
        self.end(0)

    def _take(self, message: Inbound) -> None:
        if isinstance(message, Configure):
            self._load()
            return
        self._put(message)

    def _put(self, message: AnyCommand | Rendered | Prepared) -> None:
        self._inbox.put(Received(message, self._loop.time()))
        self.wake()

    # --- loading ------------------------------------------------------------------------------------

    def _load(self) -> None:
        for number in range(3):
            self._loop.call_later(number * self._random.random(), self._progress, number)
        self._loop.call_later(3.0, self._ready)

    def _progress(self, done: int) -> None:
        if self.alive and self._engine_loop is None:
            self._send(ev.LoadProgress("weights", "reading", done, 3, "tensors"))

    def _ready(self) -> None:
        if not self.alive:
            return
        publisher = Publisher(self._send, self._loop.time)
        defaults = SamplingParams(temperature=0, max_tokens=None)
        text_model = TextModel(tokenizer(), template(), defaults)
        renderer = None
        if self._random.random() < 0.5:
            renderer = LaterRenderer(text_model, self._loop, self._random, self._put)
        chats = Chats(self.core, publisher, text_model, self._loop.time, renderer)
        preparer: Preparer = PrepareAtOnce(PromptWorkshop(text_model, None))
        if renderer is not None:
            preparer = LaterPreparer(PromptWorkshop(text_model, None), self._loop, self._random, self._put)
        programs = Programs(self.core, publisher, preparer, text_model.tokenizer, self._loop.time, self._loop.time)
        self._publisher = publisher
        self._engine_loop = EngineLoop(self.core, chats, programs, publisher, self._inbox, self._loop.time)
        publisher.send_now(info_of(self._limits))
        publisher.send_now(ev.RunState(paused=False))
        self.wake()

    # --- running ------------------------------------------------------------------------------------

    def wake(self) -> None:
        """There may be something to do."""
        if self._engine_loop is not None:
            self._next_turn(0.0)

    def _next_turn(self, seconds: float) -> None:
        if not self._turn_due:
            self._turn_due = True
            self._loop.call_later(max(seconds, self.frozen_until - self._loop.time()), self._turn)

    def _turn(self) -> None:
        self._turn_due = False
        if not self.alive or self._out.full:  # which wakes it when it is not
            return
        if self._loop.time() < self.frozen_until:
            self._next_turn(0.0)
            return
        try:
            seconds = self._do_one_thing()
        except (Killed, BrokenPipeError) as gone:
            self.end(KILLED if isinstance(gone, Killed) else 0)
        except StepError as error:
            self._crash(str(error))
        else:
            if seconds is not None:
                self._next_turn(seconds)

    def _do_one_thing(self) -> float | None:
        """A command or a step; when the next one is due, None for when a command comes."""
        loop = self._engine_loop
        assert loop is not None
        self._seen["turns"] += 1
        received = None if self._inbox.empty() else self._inbox.get()
        if received is not None and isinstance(received.command, Shutdown):
            self._publisher.flush()
            self.end(0)
            return None
        num_steps = self.core.stats().steps
        seconds = loop.turn(received)
        if self.core.stats().steps == num_steps:
            return 0.00001 if seconds == 0.0 else seconds
        self._seen["engine steps"] += 1
        self._check()
        return self._random.choice((0.0002, 0.002, 0.02))

    def _check(self) -> None:
        assert self.core.watch.violation is None, self.core.watch.violation
        if self._random.random() < 0.1:
            self.core.check_integrity()

    def _send(self, event: ev.EngineEvent) -> None:
        assert not isinstance(event, ev.IntegrityBroken), event
        self._tell(event, self.core)
        self._out.write(self._writer.frame(event))

    # --- how it ends --------------------------------------------------------------------------------

    def _at(self, place: str, batch: SchedulerOutput) -> None:
        if self.fault is None or place != self.fault[0]:
            return
        error, self.fault = self.fault[1], None
        self._seen[f"{error.__name__} {place}"] += 1
        raise error

    def _at_draft(self, place: str, batch: SchedulerOutput) -> None:
        self._seen["passes of draft models"] += place == "begun"
        if self._random.random() < 0.0002:
            self._seen["draft models that broke"] += 1
            raise StepError

    def _crash(self, reason: str) -> None:
        """As the child's main does it."""
        assert self._engine_loop is not None
        self._engine_loop.chats.fail_all(f"The engine crashed: {reason}.", "Ask again.")
        self._publisher.flush()
        self.end(CRASHED)

    def kill(self) -> None:
        """By a signal that cannot be caught."""
        self.end(KILLED)

    def end(self, code: int) -> None:
        """The process is gone."""
        if self.alive:
            self.exit_code.set_result(code)
            self._out.close() if code == 0 else self._out.die()


class SimulatedProcess:
    """The UI's side: what `EngineProcess` is for a real one."""

    pid = 1
    complaint = ""

    def __init__(self, engine: SimulatedEngine, loop: VirtualLoop, choose: Random, on_event: Any) -> None:
        self.engine = engine
        self._on_event = on_event
        self._reader, self._writer = event_reader(), FrameWriter()
        self._lost = asyncio.Event()
        self.to_engine = Pipe(loop, choose, engine.receive, engine.hang_up)
        self.from_engine = Pipe(loop, choose, self._receive, self._lost.set, engine.wake)
        engine.connect(self.from_engine)

    def start(self, config: EngineConfig) -> None:
        self.send(Configure(config))

    @property
    def quiet(self) -> bool:
        """Whether everything said has been heard."""
        return self.to_engine.idle and self.from_engine.idle

    def send(self, message: Inbound) -> None:
        if self.engine.alive:
            self.to_engine.write(bytes(self._writer.frame(message)))

    def hold(self, held: bool) -> None:
        if self.engine.alive:
            self.from_engine.hold(held)

    async def wait(self) -> int:
        code = await asyncio.shield(self.engine.exit_code)
        self.from_engine.hold(False)
        await self._lost.wait()
        self.to_engine.cut()
        return code

    async def close(self, seconds: float) -> None:
        self.to_engine.close()
        try:
            await asyncio.wait_for(asyncio.shield(self.engine.exit_code), seconds)
        except TimeoutError:
            self.engine.kill()

    def kill(self) -> None:
        self.engine.kill()

    def abandon(self) -> None:
        """The UI process died."""
        self.from_engine.cut()
        self.to_engine.die()

    def _receive(self, data: bytes) -> None:
        for event in self._reader.feed(data):
            self._on_event(event)
