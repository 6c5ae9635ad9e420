"""The engine process's loop: drain commands, step, publish. Knows no socket, no model and no text."""

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from queue import Empty, SimpleQueue

from pagedchat.engine import keyframe
from pagedchat.engine.core import EngineCore
from pagedchat.engine.dump import frame_of_engine
from pagedchat.events import CacheKeyframe, IntegrityBroken, RunState, StepReport
from pagedchat.kv_events.publisher import BlockEventPublisher
from pagedchat.service.chats import Chats
from pagedchat.service.commands import (
    AbortRequests,
    AddRequest,
    AnyCommand,
    Coming,
    Detokenize,
    Evict,
    FlushCache,
    Pause,
    Pin,
    Resume,
    SetLimit,
    SetPace,
    Shutdown,
    StepOnce,
    TellCache,
    TellSequences,
    Tokenize,
    Unpin,
)
from pagedchat.service.controls import PoolCommand, carry_out, told_sequences
from pagedchat.service.dump import write_dump
from pagedchat.service.gathering import Gathering
from pagedchat.service.programs import Programs
from pagedchat.service.prompts import Prepared
from pagedchat.service.publisher import Publisher
from pagedchat.service.rendering import Rendered
from pagedchat.service.rounds import SHARE_OF_STEP

log = logging.getLogger("pagedchat.engine")

MAX_PACE = 60.0
"""Seconds a step may be made to take."""
QUIET = 0.2
"""Seconds after a step before spare work is gone on with: a program that was answered asks again at once, and would
wait for the end of a piece of it."""
_SHORTEST_WAIT = 0.001
"""Seconds; what is left of a wait may be too little for a clock to move on by it."""


@dataclass(frozen=True, slots=True)
class Received:
    """A command, or what one waits for, and when it came in, in seconds."""

    command: "AnyCommand | Rendered | Prepared | RunnerLost"
    time: float


class RunnerLost:
    """Runs no batch any more, though nobody has asked it for one."""


Inbox = SimpleQueue[Received]
"""Filled by the threads that read and that write prompts, emptied by the loop."""


class EngineLoop:
    """Runs an engine until it is told to end.

    A pause acts before the next step. Commands are carried out while paused too, and in slow motion between the
    steps; what they did to the cache is published at once, only steps wait.

    Args:
        core: the engine.
        chats: the sessions on it.
        programs: the requests of programs.
        publisher: hears all that happens.
        inbox: where commands come from.
        clock: seconds.
        dump_dir: where a dump is written if the engine's books disagree; None writes none.
        spare_work: done a little at a time while nobody waits; says whether there is more.
        block_events: tells other programs what the cache has; closed at the end.
    """

    def __init__(
        self,
        core: EngineCore,
        chats: Chats,
        programs: Programs,
        publisher: Publisher,
        inbox: Inbox,
        clock: Callable[[], float] = time.monotonic,
        dump_dir: Path | None = None,
        spare_work: Callable[[], bool] = lambda: False,
        block_events: BlockEventPublisher | None = None,
    ) -> None:
        self._core = core
        self.chats = chats
        self.programs = programs
        self._feed = chats.feed
        self._publisher = publisher
        self._inbox = inbox
        self._clock = clock
        self._dump_dir = dump_dir
        self._spare_work = spare_work
        self._block_events = block_events
        self._has_spare_work = True
        self._broken = False
        self._paused = False
        self._steps_left = 0
        self._pace = 0.0
        self._gathering = Gathering(clock)
        self._last_step = float("-inf")
        self._num_reports = 0
        self._last_report: StepReport | None = None

    def run(self) -> None:
        """Until `Shutdown`."""
        received: Received | None = None
        while received is None or not isinstance(received.command, Shutdown):
            received = self._get(self.turn(received))
        self._publish(wait=True)
        if self._block_events is not None:
            self._block_events.close()

    def turn(self, received: Received | None) -> float | None:
        """One thing: the command that has come; else a step, where one is due; else some spare work.

        Returns:
            How long a command is to be waited for, in seconds: 0 where there is more to do; None for as long as it
            takes.
        """
        if received is not None:
            self.handle(received)
            return 0.0
        seconds = self.seconds_to_step()
        if seconds == 0.0:
            awaited = self._seconds_of_gathering()
            if awaited == 0.0:
                self.step()
            return awaited
        return self._rest(seconds)

    # --- commands -----------------------------------------------------------------------------------

    def handle(self, received: Received) -> None:
        """Carry out one command."""
        match received.command:
            case Pause():
                self._set_paused(True)
            case Resume():
                self._set_paused(False)
            case StepOnce(count):
                self._steps_left += count if self._paused else 0
            case SetPace(seconds):
                self._pace = min(MAX_PACE, max(0.0, seconds))
                self._tell_state()
            case SetLimit() | Pin() | Unpin() | Evict() | FlushCache() as command:
                self._control(command)
            case TellCache():
                self._tell_cache()
            case TellSequences(most):
                self._settle()
                self._publisher.send_now(told_sequences(self._core, most))  # after the steps that made them so
            case RunnerLost():
                self._core.runner.check()
            case Coming(num_requests):
                self._gathering.hear(num_requests)
            case AddRequest() | AbortRequests() | Tokenize() | Detokenize() | Prepared() as command:
                self.programs.handle(command)
            case command:
                self.chats.handle(command, received.time)
        if not (isinstance(received.command, AddRequest) and self._more_has_come):
            self._settle()

    @property
    def _more_has_come(self) -> bool:
        """Whether there are commands that come before a step: what requests did is taken in once for all of those
        that have come together, since the first tokens of all are looked for each time."""
        return not self._inbox.empty()

    def _set_paused(self, paused: bool) -> None:
        self._paused = paused
        self._steps_left = 0
        self._tell_state()

    def _control(self, command: PoolCommand) -> None:
        notice = carry_out(self._core, command)
        self._settle()  # what was done is told before the answer
        if isinstance(command, SetLimit) and not notice.failed:
            self._tell_state()
        self._publisher.send_now(notice)

    def _tell_cache(self) -> None:
        self._settle()
        frame = frame_of_engine(self._core, self._num_reports, self._last_report)
        self._publisher.send_now(CacheKeyframe(keyframe.encoded(frame)))

    def _tell_state(self) -> None:
        self._publisher.send_now(RunState(self._paused, self._pace, self._core.controls.limit))

    # --- steps --------------------------------------------------------------------------------------

    @property
    def may_step(self) -> bool:
        """Whether there is work and nothing holds it."""
        return self._core.has_work and (not self._paused or self._steps_left > 0)

    def seconds_to_step(self) -> float | None:
        """How long the next step is to be waited for; None until there is a command."""
        if not self.may_step:
            return None
        return max(0.0, self._last_step + self._pace - self._clock()) if self._pace else 0.0

    def _seconds_of_gathering(self) -> float:
        """How long a first step is to be waited for, because there will be more for it."""
        queues = self._core.scheduler.queues
        return 0.0 if queues.running else self._gathering.seconds(len(queues.waiting))

    def step(self) -> None:
        """Run one step and publish what is due."""
        self._last_step = self._clock()
        report = self._core.step()
        self._take(report)
        self._settle()
        self._tell_what_is_wrong(report)
        if self._paused:
            self._steps_left -= 1
            self._publish()
        else:
            self._tell_some((self._clock() - self._last_step) * SHARE_OF_STEP)

    def _tell_some(self, seconds: float) -> None:
        """What is due of what is new: as much as may be done beside the next step, and the rest beside those after
        it."""
        if self.programs.is_busy:
            self.programs.tell_due(seconds)
            self._settle()
        self._publisher.write_piece()
        if (self._publisher.is_due or self._feed.is_telling) and self._feed.tell_some(seconds):
            if self.chats.searches.running:
                self.chats.searches.tell()
            self._settle()
            self._publisher.flush()

    def _publish(self, wait: bool = False) -> None:
        """All that is known, text included."""
        self._feed.tell_all()
        if self.chats.searches.running:
            self.chats.searches.tell()
        if self.programs.is_busy:
            self.programs.tell_all()
        self._settle()
        self._publisher.flush(wait)

    def _tell_what_is_wrong(self, report: StepReport) -> None:
        """Once that the books disagree."""
        violation = self._core.watch.violation
        if violation is not None and not self._broken:
            self._broken = True
            log.error("The engine's books disagree after step %d: %s", report.step, violation)
            dump = write_dump(self._core, violation, report, self._dump_dir)
            self._publisher.send_now(IntegrityBroken(report.step, violation, dump))

    def _rest(self, seconds: float | None) -> float | None:
        """Nothing is due; after some spare work, where there was any, no time has passed for sure.

        While a prompt is becoming text there is work, only not yet.
        """
        self._publish(wait=seconds is None)
        if seconds is None and not (self.chats.awaits_text or self.programs.awaits_prompts):
            self._steps_left = 0
            if self._has_spare_work:
                return self._do_spare_work()
        return seconds

    def _do_spare_work(self) -> float:
        """A piece of it, once it has been quiet for a while; returns how long a command is to be waited for."""
        left = self._last_step + QUIET - self._clock()
        if left > 0.0:
            return max(left, _SHORTEST_WAIT)
        self._has_spare_work = self._spare_work()
        return 0.0

    def _get(self, seconds: float | None) -> Received | None:
        """The next command, if it comes in time."""
        if seconds == 0.0 and self._inbox.empty():
            return None  # between two steps, as a rule
        try:
            return self._inbox.get(block=seconds != 0.0, timeout=seconds)
        except Empty:
            return None

    def _settle(self) -> None:
        """Take in what verbs did; ending a request is a verb that may itself follow from a report."""
        while (report := self._core.flush()) is not None:
            self._take(report)

    def _take(self, report: StepReport) -> None:
        self._num_reports += 1
        self._last_report = report
        self._publisher.add_report(report)
        self._feed.follow(report)
        if self.chats.searches.running:
            self.chats.take_searches()
        if self.programs.is_busy:
            self.programs.follow(report)
        if self._block_events is not None:
            self._block_events.add(report)
