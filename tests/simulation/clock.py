"""An asyncio loop whose time passes only when nothing else can happen: no clock, no files, no sockets."""

import asyncio
from typing import Any


class NothingLeftError(AssertionError):
    """Somebody waits, and nothing will ever happen again."""


class _NoFiles:
    """The selector of a loop without files: instead of waiting for one, time goes on."""

    def __init__(self) -> None:
        self.now = 0.0

    def select(self, timeout: float | None) -> list[Any]:
        if timeout is None:
            raise NothingLeftError("everybody waits, and nothing is due")
        if timeout > 0:
            self.now += max(timeout, 1e-9)
        return []


class VirtualLoop(asyncio.BaseEventLoop):
    """Runs callbacks in the order of their times, without waiting for any."""

    def __init__(self) -> None:
        super().__init__()
        self._selector = _NoFiles()

    def time(self) -> float:
        """Seconds since the loop was made."""
        return self._selector.now

    def _process_events(self, event_list: list[Any]) -> None:
        """There are no files, so there are none."""

    def _write_to_self(self) -> None:
        """Nobody sleeps, so nobody is woken."""
