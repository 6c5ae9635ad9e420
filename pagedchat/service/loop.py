"""The engine process's loop: drain commands, step, publish. Knows no socket, no model and no text."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from queue import SimpleQueue

from pagedchat.engine.core import EngineCore
from pagedchat.events import RunState, StepReport
from pagedchat.service.chats import Chats
from pagedchat.service.commands import AnyCommand, Pause, Resume, Shutdown, StepOnce
from pagedchat.service.publisher import Publisher


@dataclass(frozen=True, slots=True)
class Received:
    """A command and when it came in, in seconds."""

    command: AnyCommand
    time: float


Inbox = SimpleQueue[Received]
"""Filled by the thread that reads, emptied by the loop."""


class EngineLoop:
    """Runs an engine until it is told to end.

    A pause acts before the next step. Commands are carried out while paused too, and what they did to the cache is
    published; only steps wait.
    """

    def __init__(
        self,
        core: EngineCore,
        chats: Chats,
        publisher: Publisher,
        inbox: Inbox,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._core = core
        self.chats = chats
        self._publisher = publisher
        self._inbox = inbox
        self._clock = clock
        self._paused = False
        self._steps_left = 0

    def run(self) -> None:
        """Until `Shutdown`."""
        while not isinstance((received := self._next()).command, Shutdown):
            self.handle(received)
        self._publisher.flush()

    def handle(self, received: Received) -> None:
        """Carry out one command."""
        match received.command:
            case Pause():
                self._set_paused(True)
            case Resume():
                self._set_paused(False)
            case StepOnce(count):
                self._steps_left += count if self._paused else 0
            case command:
                self.chats.handle(command, received.time)
        self._settle()

    @property
    def may_step(self) -> bool:
        """Whether there is work and nothing holds it."""
        return self._core.has_work and (not self._paused or self._steps_left > 0)

    def step(self) -> None:
        """Run one step and publish what is due."""
        self._take(self._core.step())
        self._settle()
        if self._paused:
            self._steps_left -= 1
            self._publisher.flush()
        else:
            self._publisher.flush_if_due()

    def _next(self) -> Received:
        """Step until a command comes; with nothing to do, wait for one."""
        while self._inbox.empty():
            if not self.may_step:
                self._steps_left = 0
                self._publisher.flush()
                break
            self.step()
        return self._inbox.get()

    def _set_paused(self, paused: bool) -> None:
        self._paused = paused
        self._steps_left = 0
        self._publisher.send_now(RunState(paused))

    def _settle(self) -> None:
        """Take in what verbs did; ending a request is a verb that may itself follow from a report."""
        while (report := self._core.flush()) is not None:
            self._take(report)

    def _take(self, report: StepReport) -> None:
        self._publisher.add_report(report)
        self.chats.follow(report)
