"""Engines with their chats: one group, or two side by side, of which one is shown.

A group has all that belongs to one model: the engine's link, what is known of it, what can be asked of it, its
chats, its recording. The group of the active chat is the one that is shown: header, inspector, time travel and the
commands about an engine are about that one. Knows no screen.
"""

from collections.abc import Callable, Iterator

from textual.message import Message

from pagedchat.chat.sanitize import one_line
from pagedchat.chat.session import ChatSession
from pagedchat.errors import PagedChatError
from pagedchat.service.commands import EngineLink
from pagedchat.trace.recorder import Recorder
from pagedchat.tui.bridge import EngineBridge
from pagedchat.tui.engine_controls import EngineControls
from pagedchat.view.chats.desk import ChatDesk
from pagedchat.view.engine_view import EngineView
from pagedchat.view.options import UiOptions
from pagedchat.view.past.time_travel import TimeTravel
from pagedchat.view.sentences.engine_words import EngineNews
from pagedchat.view.sentences.words import model_name

MOST = 2
"""Models at a time."""


class EngineGroup:
    """One engine and its chats. Made by `EngineGroups`."""

    def __init__(
        self, link: EngineLink, model: str, view: EngineView, desk: ChatDesk, post: Callable[[Message], object],
        recorder: Recorder,
    ) -> None:  # fmt: skip
        self.link = link
        self.view = view
        """What is known of the engine."""
        self.engine = EngineControls(view, link.send)
        """What can be asked of it."""
        self.desk = desk
        """Its chats."""
        self.bridge = EngineBridge(link, view, desk, post, recorder)
        self.time_travel = TimeTravel(view, lambda: self.bridge.recording)
        """Over all that was recorded since its start."""
        self.news = EngineNews(view)
        self.model = model
        """What was asked for."""
        self.model_before = ""
        """The one before, until this one is loaded."""
        self.started: float | None = None
        """When it was started, or started again; None: it waits until the other one has its memory."""

    @property
    def name(self) -> str:
        """What the model is called on the screen."""
        live = self.view.live
        return model_name(live.info.model if live is not None else self.model)

    @property
    def model_id(self) -> str:
        """The model by its own account, or what was asked for."""
        return self.view.live.info.model if self.view.live is not None else self.model

    def check_started(self) -> None:
        """Whether it has been started.

        Raises:
            PagedChatError: it waits until the other one has its memory.
        """
        if self.started is None:
            raise PagedChatError(
                f"{one_line(self.name)} waits until the other one is loaded.", "/model --close ends it."
            )

    @property
    def has_settled(self) -> bool:
        """Whether it has all the memory that it will have, or none."""
        return self.view.live is not None or self.view.failure is not None or self.bridge.died is not None

    @property
    def has_no_engine(self) -> bool:
        """Whether its engine could not start, or ended too often."""
        died = self.bridge.died
        return self.view.failure is not None or (died is not None and not died.restarting)


class EngineGroups:
    """The groups from left to right; at first there is one.

    Args:
        link: the first engine, not yet started.
        options: what the command line said.
        post: passes a message on to the app.
        clock: seconds.
    """

    def __init__(
        self,
        link: EngineLink,
        options: UiOptions,
        post: Callable[[Message], object],
        clock: Callable[[], float],
    ) -> None:
        self._options = options
        self._post = post
        self._clock = clock
        self.on_change: Callable[[], None] = _nobody_listens
        """Called when chats have more than another piece of text."""
        self._all: list[EngineGroup] = []
        self.ending: list[EngineGroup] = []
        """Those that were closed, whose engines may not have ended yet."""
        self.shown = self._add(link, options.model, Recorder(options.trace, joins=bool(options.attached)))
        """The group of the active chat."""

    # --- which there are ----------------------------------------------------------------------------

    def __iter__(self) -> Iterator[EngineGroup]:
        return iter(self._all)

    def __len__(self) -> int:
        return len(self._all)

    @property
    def first(self) -> EngineGroup:
        """The one on the left, or the only one."""
        return self._all[0]

    def open(self, model: str) -> EngineGroup:
        """Another engine with the same options, not yet started, without chats.

        Raises:
            PagedChatError: there are two already, or no model can be called that.
        """
        self.check_room()
        return self._add(self.first.link.beside(model), model, Recorder())

    def check_room(self) -> None:
        """Whether another one may be opened.

        Raises:
            PagedChatError: there are two already.
        """
        if len(self) == MOST:
            names = " and ".join(one_line(group.name) for group in self)
            raise PagedChatError(
                f"Two models at most stand side by side, and {names} do.",
                "/model --close ends the one of this chat.",
            )

    def close(self, group: EngineGroup) -> None:
        """It is no group any more; its engine is to be ended."""
        self._all.remove(group)
        self.ending.append(group)
        if self.shown is group:
            self.shown = self.first
        self.tell_names()

    def _add(self, link: EngineLink, model: str, recorder: Recorder) -> EngineGroup:
        view = EngineView(self._clock)
        view.attached_to = self._options.attached
        desk = ChatDesk(link.send, self._options, lambda: (chat.session_id for chat in self.chats))
        desk.on_change = self._chats_changed
        if self._all:  # how replies are read is chosen for all chats
            desk.reading = self.first.desk.reading
        group = EngineGroup(link, model, view, desk, self._post, recorder)
        self._all.append(group)
        self.tell_names()
        return group

    def tell_names(self) -> None:
        """Every view knows its model's name where there are two."""
        names = [one_line(group.name) for group in self]
        for number, (group, name) in enumerate(zip(self, names, strict=True), 1):
            same = names.count(name) > 1
            group.view.called = "" if len(self) == 1 else f"{name} ({number})" if same else name

    def _chats_changed(self) -> None:
        self.on_change()

    # --- their chats --------------------------------------------------------------------------------

    @property
    def chats(self) -> list[ChatSession]:
        """Of all groups, in the order in which they are shown."""
        return [chat for group in self for chat in group.desk]

    def get(self, session_id: int) -> ChatSession | None:
        """The chat of this number, if it is there."""
        return next((chat for chat in self.chats if chat.session_id == session_id), None)

    def of(self, chat: ChatSession) -> EngineGroup:
        """The group in which a chat stands; of one that was closed, the one that is shown."""
        return next((group for group in self if any(chat is other for other in group.desk)), self.shown)

    @property
    def num_busy(self) -> int:
        """Chats with a request queued or running."""
        return sum(group.desk.num_busy for group in self)


def _nobody_listens() -> None:
    """Until somebody does."""
