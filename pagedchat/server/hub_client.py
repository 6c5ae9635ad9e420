"""One of several clients of an engine, as that client sees it: an `EngineLink`. Knows the hub that made it, and no
other client.
"""

from collections.abc import AsyncIterator, Callable, Iterable
from typing import Literal, Protocol

from pagedchat.errors import PagedChatError
from pagedchat.events import EngineEvent
from pagedchat.server.numbers import Numbers
from pagedchat.server.shared_cache import Watcher
from pagedchat.service.commands import AnyCommand, EngineLink

Role = Literal["terminal", "program", "onlooker"]
"""terminal: may do everything that does not end the engine. program: has chats. onlooker: looks on."""

DECIDES = "The server decides which model runs, and when its engine is started again."
_HINT = "Whoever runs `pagedchat serve` can end it and start it with another model."


class Hub(Protocol):
    """As `hub.EngineHub` is."""

    numbers: Numbers

    async def start(self) -> None:
        """Start the engine, if nobody has."""
        ...

    def send(self, client: "HubClient", command: AnyCommand) -> None:
        """A client wants something."""
        ...

    def refuse(self, client: "HubClient", command: AnyCommand, message: str, hint: str) -> None:
        """It gets nothing."""
        ...

    def listen(self, client: "HubClient", story: Iterable[EngineEvent] = ()) -> None:
        """Somebody reads what it is told."""
        ...

    def silence(self, client: "HubClient") -> None:
        """Nobody does."""
        ...

    def leave(self, client: "HubClient") -> None:
        """It is gone."""
        ...


class HubClient:
    """One client's `EngineLink`. Made by `EngineHub.client`."""

    def __init__(self, hub: Hub, key: int, role: Role, watcher: Watcher) -> None:
        self._hub = hub
        self.key = key
        self.role = role
        self.watcher = watcher
        self.queue = watcher.queue
        self.reads = True
        """Whether anybody listens: while nobody does nothing is kept of what there is to hear."""
        self.closed = False
        self.on_event: Callable[[EngineEvent], None] = _nobody_listens
        """Hears what concerns its own requests, whether anybody reads or not."""

    async def start(self) -> None:
        """Start the engine, if nobody has."""
        await self._hub.start()

    async def restart(self) -> None:
        """Nobody starts anew what others use.

        Raises:
            PagedChatError: always.
        """
        raise PagedChatError(DECIDES, _HINT)

    async def switch(self, model: str) -> None:
        """As `restart`.

        Raises:
            PagedChatError: always.
        """
        raise PagedChatError(DECIDES, _HINT)

    def beside(self, model: str) -> EngineLink:
        """As `restart`.

        Raises:
            PagedChatError: always.
        """
        raise PagedChatError(DECIDES, _HINT)

    def send(self, command: AnyCommand) -> None:
        """Queue a command. What it may not do, or cannot be done, is answered at once."""
        self._hub.send(self, command)

    def refuse(self, command: AnyCommand, message: str, hint: str) -> None:
        """Answer a command that is not to reach the engine."""
        self._hub.refuse(self, command, message, hint)

    @property
    def num_sessions(self) -> int:
        """Sessions that are not closed."""
        return len(self._hub.numbers.sessions_of(self.key))

    async def events(self) -> AsyncIterator[EngineEvent]:
        """Everything that is known already, and then all events, in order; ends after `close`."""
        while (event := await self.queue.get()) is not None:
            yield event

    async def close(self) -> None:
        """Leave: its sessions are closed, the engine goes on."""
        self._hub.leave(self)

    def listen(self, story: Iterable[EngineEvent] = ()) -> None:
        """Somebody reads from now on, from the start; `story` comes after what the engine is."""
        self._hub.listen(self, story)

    def silence(self) -> None:
        """Nobody reads any more; its requests go on."""
        self._hub.silence(self)


def _nobody_listens(_event: EngineEvent) -> None:
    """Until somebody does."""
