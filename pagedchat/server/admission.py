"""Who is let in: at most so many sequences are generated or wait at a time, and at the end nobody new.

One loop has it. Knows counts, no requests.
"""

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from enum import Enum

SECONDS_TO_LEAVE = 5.0
"""For those that are told to; a client that reads nothing does not keep the server from ending."""


class Answer(Enum):
    """To who asks to be let in."""

    COME_IN = 0
    FULL = 1
    """As many as may be are in."""
    CLOSING = 2
    """The server is about to end."""


class Admission:
    """Counts sequences.

    Args:
        most: that may be generated and wait together. More of one request come in while nobody else is there, or
            they never could.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._empty = asyncio.Event()
        self._empty.set()
        self.num_inside = 0
        """Sequences."""
        self.closing = False
        self.on_cut: set[Callable[[], None]] = set()
        """Called once, when those that are still in have to leave."""
        self._cut = asyncio.Event()

    def ask(self, count: int) -> Answer:
        """Whether so many sequences of one request may come in now."""
        if self.closing:
            return Answer.CLOSING
        fits = self.num_inside == 0 or self.num_inside + count <= self._most
        return Answer.COME_IN if fits else Answer.FULL

    @contextmanager
    def inside(self, count: int) -> Iterator[None]:
        """So many are in while this is entered; whoever enters has asked."""
        self.num_inside += count
        self._empty.clear()
        try:
            yield
        finally:
            self.num_inside -= count
            if not self.num_inside:
                self._empty.set()

    def cut(self) -> None:
        """Have those that are in leave now."""
        self._cut.set()
        for leave in tuple(self.on_cut):
            leave()

    async def close(self, patience: float) -> None:
        """Let nobody in any more, wait so many seconds for those that are in to leave, then have them leave.

        Whoever cuts meanwhile ends the waiting.
        """
        self.closing = True
        empty, cut = asyncio.ensure_future(self._empty.wait()), asyncio.ensure_future(self._cut.wait())
        await asyncio.wait((empty, cut), timeout=patience, return_when=asyncio.FIRST_COMPLETED)
        if not empty.done() and not cut.done():
            self.cut()
        cut.cancel()
        with suppress(TimeoutError):
            await asyncio.wait_for(empty, SECONDS_TO_LEAVE)
