"""Engines with their chats: one group, or several side by side, of which one is shown.

A group has all that belongs to one model: the engine's link, what is known of it, what can be asked of it, its
chats, its recording. The engine is one of this machine, of which there are two at most, or a server. The group of
the active chat is the one that is shown: header, inspector, time travel and the commands about an engine are about
that one. Knows no screen.
"""

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from textual.message import Message

from pagedchat import bundled
from pagedchat.chat.sanitize import one_line
from pagedchat.chat.session import ChatSession
from pagedchat.errors import PagedChatError
from pagedchat.events import EngineReady
from pagedchat.history.records import SERVER
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

if TYPE_CHECKING:
    from pagedchat.remote.openai.address import ServerAddress

MOST = 2
"""Engines of this machine at a time."""
MOST_GROUPS = 9
"""Of engines and servers."""


class EngineGroup:
    """One engine and its chats. Made by `EngineGroups`."""

    def __init__(
        self, link: EngineLink, model: str, view: EngineView, desk: ChatDesk, post: Callable[[Message], object],
        recorder: Recorder, server: "ServerAddress | None" = None,
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
        self.server = server
        """Which server it is; None: it is an engine of this machine."""
        self.asked: object = None
        """What was said when a server was asked last."""
        self.offered: object = None
        """The models of a server that the user was last asked to choose from."""
        self.model_before = ""
        """The one before, until this one is loaded."""
        self.started: float | None = None
        """When it was started, or started again; None: it waits until the other one has its memory."""

    @property
    def name(self) -> str:
        """What the model is called on the screen."""
        info = self._found
        if self.server is None:
            return model_name(info.model if info is not None else self.model)
        model = info.model if info is not None else self.server.model
        return f"{model_name(model)} at {self.server.name}" if model else self.server.name

    @property
    def expected(self) -> str:
        """What is shown until it says what it found."""
        return self.model if self.server is None else self.name

    @property
    def model_id(self) -> str:
        """The model by its own account, or what was asked for; and where it runs, if not on this machine."""
        info = self._found
        if self.server is None:
            return info.model if info is not None else self.model
        return f"{info.model if info is not None else self.server.model} at {self.server.name}".strip()

    @property
    def asked_for(self) -> str:
        """By which another run of the program asks for the same; that of a server begins with `server:`."""
        return self.model if self.server is None else f"{SERVER}{self.server.text}"

    @property
    def note(self) -> str:
        """What is said about the model in empty chats."""
        return bundled.note(self.model) if self.server is None else f"{self.server.name}: {self.server.url}"

    @property
    def _found(self) -> EngineReady | None:
        """What the engine that there is now said of itself."""
        server = self.view.server
        return server.info if server is not None else self.view.live.info if self.view.live is not None else None

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
        """Whether it has all the memory of this machine that it will have, or none."""
        return (
            self.server is not None
            or self.view.live is not None
            or self.view.failure is not None
            or self.bridge.died is not None
        )

    @property
    def has_no_engine(self) -> bool:
        """Whether its engine could not start, or ended too often."""
        died = self.bridge.died
        return self.view.failure is not None or (died is not None and not died.restarting)


def server_link(address: "ServerAddress") -> EngineLink:
    """A server as an engine, not yet asked."""
    from pagedchat.remote.openai.link import OpenAILink  # noqa: PLC0415 - only who has a server

    return OpenAILink(address)


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
        first = None if options.has_engine else options.servers[0]
        recorder = Recorder(options.trace, joins=bool(options.attached))
        self.shown = self._add(link, options.model, recorder, first)
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
        """Another engine with the same options, not yet started, without chats; of a server another of its models.

        Raises:
            PagedChatError: there are two already, or no model can be called that.
        """
        shown = self.shown
        if shown.server is not None:
            self._check_groups()
            server = shown.server.with_model(model)
            return self._add(shown.link.beside(model), server.text, Recorder(), server)
        self.check_room()
        return self._add(shown.link.beside(model), model, Recorder())

    def open_local(self, model: str) -> EngineGroup:
        """An engine of this machine beside servers, not yet started, without chats.

        Raises:
            PagedChatError: there are two already.
        """
        self.check_room()
        local = next((group for group in self if group.server is None), None)
        if local is not None:
            return self._add(local.link.beside(model), model, Recorder())
        if self._options.open_engine is None:
            raise PagedChatError(
                "This run has no engine of its own.", "Start pagedchat with --model beside --server."
            )
        return self._add(self._options.open_engine(model), model, Recorder())

    def open_server(self, server: "ServerAddress") -> EngineGroup:
        """A server, not yet asked, without chats.

        Raises:
            PagedChatError: there are too many already.
        """
        self._check_groups()
        opened = (self._options.open_server or server_link)(server)
        return self._add(opened, server.text, Recorder(), server)

    def named(self, text: str) -> EngineGroup | None:
        """The group of this number, from the left, or whose model or server is called so."""
        for number, group in enumerate(self, 1):
            names = {str(number), group.name, group.model, group.view.called}
            if group.server is not None:
                names |= {group.server.name, group.server.text, group.server.url}
            if text in names:
                return group
        return None

    @property
    def asked_for(self) -> tuple[str, ...]:
        """What another run asks for to have the same; nothing where there is only an engine of this machine."""
        alone = len(self) == 1 and self.first.server is None
        return () if alone else tuple(group.asked_for for group in self)

    def _check_groups(self) -> None:
        if len(self) >= MOST_GROUPS:
            raise PagedChatError(
                f"{MOST_GROUPS} engines and servers stand side by side, and no more do.",
                "/server --close closes the one of this chat.",
            )

    def check_room(self) -> None:
        """Whether another one may be opened.

        Raises:
            PagedChatError: there are two already.
        """
        self._check_groups()
        local = [group for group in self if group.server is None]
        if len(local) == MOST:
            names = " and ".join(one_line(group.name) for group in local)
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

    def _add(
        self, link: EngineLink, model: str, recorder: Recorder, server: "ServerAddress | None" = None
    ) -> EngineGroup:
        view = EngineView(self._clock)
        view.attached_to = self._options.attached
        desk = ChatDesk(link.send, self._options, lambda: (chat.session_id for chat in self.chats))
        desk.on_change = self._chats_changed
        if self._all:  # how replies are read is chosen for all chats
            desk.reading = self.first.desk.reading
        group = EngineGroup(link, model, view, desk, self._post, recorder, server)
        self._all.append(group)
        self.tell_names()
        return group

    def tell_names(self) -> None:
        """Every view knows its model's name where there are several."""
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
