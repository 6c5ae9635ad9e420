"""An engine link that somebody else listens to as well: for metrics, the screens need not know of them."""

from collections.abc import AsyncIterator, Callable
from typing import TYPE_CHECKING

from pagedchat.events import EngineEvent

if TYPE_CHECKING:
    from pagedchat.service.commands import AnyCommand, EngineLink

Observer = Callable[[EngineEvent], None]
"""Hears every event of the engine, in order."""


class ObservedLink:
    """Passes everything on as it is; `observer` hears every event before the listener does."""

    def __init__(self, link: "EngineLink", observer: Observer) -> None:
        self._link = link
        self._observer = observer

    async def start(self) -> None:
        """Start the engine."""
        await self._link.start()

    async def restart(self) -> None:
        """Start it anew."""
        await self._link.restart()

    async def switch(self, model: str) -> None:
        """Start it anew with another model."""
        await self._link.switch(model)

    def beside(self, model: str) -> "EngineLink":
        """Another engine, which nobody else listens to."""
        return self._link.beside(model)

    def send(self, command: "AnyCommand") -> None:
        """Queue a command."""
        self._link.send(command)

    async def events(self) -> AsyncIterator[EngineEvent]:
        """All events from now on, in order."""
        async for event in self._link.events():
            self._observer(event)
            yield event

    async def close(self) -> None:
        """End the engine."""
        await self._link.close()


def with_metrics(link: "EngineLink", port: int | None) -> "tuple[EngineLink, str]":
    """The link with its metrics served on `port`, and where; without a port the link as it is, and an empty string.

    Raises:
        PagedChatError: the port cannot be had.
    """
    if port is None:
        return link, ""
    from pagedchat.metrics.server import MetricsServer  # noqa: PLC0415 - the first frame does not wait for it

    server = MetricsServer(port)
    server.start()
    return ObservedLink(link, server.fold), server.url
