"""The only place where what the engine says reaches the screens.

Every event is folded into plain objects (`EngineView`, `ChatDesk`) and recorded as it comes; a token is no Textual
message and draws nothing. What changed is drawn later, in turns with the keyboard. Only the few events that change
what the engine *is* (loading, ready, failed, died, paused) are passed on at once, as one message.
"""

import asyncio
import time
from collections.abc import Callable, Iterator

from textual.message import Message

from pagedchat.events import (
    EngineDied,
    EngineEvent,
    EngineFailed,
    EngineNotice,
    EngineReady,
    LoadProgress,
    RunState,
    ServerModels,
    Steps,
    TextDelta,
)
from pagedchat.service.commands import EngineLink
from pagedchat.trace.recorder import Recorder
from pagedchat.trace.recording import Recording
from pagedchat.tui.messages import EngineStateChanged
from pagedchat.view.chats.desk import ChatDesk
from pagedchat.view.engine_view import EngineView

SLICE_SECONDS = 0.004
"""After so much work without a pause the keyboard gets its turn, however many events are waiting."""
MAX_REPORTS = 4
"""Reports folded in one piece."""


class EngineBridge:
    """Starts the engine and folds its events until it ends.

    Args:
        link: the engine, not yet started.
        view: what every widget reads of it.
        desk: the chats.
        post: passes a message on to the app.
        recorder: keeps every report; by default in a file without a name.
    """

    def __init__(
        self,
        link: EngineLink,
        view: EngineView,
        desk: ChatDesk,
        post: Callable[[Message], object],
        recorder: Recorder | None = None,
    ) -> None:
        self._link = link
        self._view = view
        self._desk = desk
        self._post = post
        self._recorder = recorder or Recorder()
        self._told_problem = False
        self._dirty = True
        self.died: EngineDied | None = None
        """How the engine ended, until the next one is ready."""

    async def run(self) -> None:
        """Ends when the link is closed."""
        events = self._link.events()
        await self._link.start()
        worked = 0.0
        try:
            async for event in events:
                for piece in _pieces(event):
                    began = time.monotonic()
                    self._take_in(piece)
                    worked += time.monotonic() - began
                    if worked >= SLICE_SECONDS:
                        await asyncio.sleep(0)
                        worked = 0.0
        finally:
            self._recorder.close()

    async def restart(self) -> None:
        """Start the engine anew, whatever became of it."""
        self.died = None
        self._view.starting_anew()
        self._dirty = True
        await self._link.restart()

    async def switch(self, model: str) -> None:
        """Start the engine anew with another model."""
        self.died = None
        self._view.starting_anew()
        self._dirty = True
        await self._link.switch(model)

    def _take_in(self, event: EngineEvent) -> None:
        if not isinstance(event, TextDelta):  # which are many, and name nobody
            self._view.labels = self._desk.labels  # events are told in words, a new fork's name among them
        self._view.apply(event)
        self._record(event)
        self._desk.apply(event)
        self._dirty = True
        if isinstance(event, EngineDied):
            self.died = event
        elif isinstance(event, EngineReady):
            self.died = None
        if isinstance(event, _CHANGES_THE_ENGINE):
            self._post(EngineStateChanged())

    @property
    def recording(self) -> Recording | None:
        """All that the engine has done, once it is ready."""
        return self._recorder.recording

    def _record(self, event: EngineEvent) -> None:
        if self._view.server is not None:
            return  # which tells no steps
        live = self._view.live
        self._recorder.apply(event, live.mirror if live else None, self._view.labels)
        problem = self._recorder.problem
        if problem is not None and not self._told_problem:
            self._told_problem = True
            self._view.apply(EngineNotice(problem.message, problem.hint, failed=True))

    def take_dirty(self) -> bool:
        """Whether anything came since the last call."""
        self._recorder.keep_up()
        dirty, self._dirty = self._dirty, False
        return dirty


_CHANGES_THE_ENGINE = LoadProgress | EngineReady | EngineFailed | EngineDied | RunState | ServerModels


def _pieces(event: EngineEvent) -> Iterator[EngineEvent]:
    """A fast engine reports many steps at once; they are taken in a few at a time."""
    if not isinstance(event, Steps) or len(event.reports) <= MAX_REPORTS:
        yield event
        return
    for first in range(0, len(event.reports), MAX_REPORTS):
        yield Steps(event.reports[first : first + MAX_REPORTS])
