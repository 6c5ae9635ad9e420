"""What the screens know of the engine: commands in, events out. `client.EngineClient` is the real one."""

from collections.abc import AsyncIterator
from typing import Protocol

from pagedchat.events import EngineEvent
from pagedchat.service.commands import AnyCommand


class EngineLink(Protocol):
    """A running (or starting, or restarting) engine."""

    async def start(self) -> None:
        """Start the engine; returns at once, progress comes as events."""
        ...

    def send(self, command: AnyCommand) -> None:
        """Queue a command; never blocks. Commands sent before the engine is ready wait for it."""
        ...

    def events(self) -> AsyncIterator[EngineEvent]:
        """All events from now on, in order; ends after `close`."""
        ...

    async def close(self) -> None:
        """End the engine process and wait for it (killed if it does not end within seconds)."""
        ...
