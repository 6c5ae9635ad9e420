"""Who is let in: at most so many sequences are generated or wait at a time, and at the end nobody new.

One loop has it. Knows counts, no requests.
"""

import asyncio
from collections.abc import Iterator
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
        self.cut = asyncio.Event()
        """Set when those that are still in have to leave."""

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

    async def close(self, patience: float) -> None:
        """Let nobody in any more, wait so many seconds for those that are in to leave, then have them leave.

        Whoever sets `cut` meanwhile ends the waiting.
        """
        self.closing = True
        empty = asyncio.ensure_future(self._empty.wait())
        cut = asyncio.ensure_future(self.cut.wait())
        await asyncio.wait((empty, cut), timeout=patience, return_when=asyncio.FIRST_COMPLETED)
        self.cut.set()
        await cut
        with suppress(TimeoutError):
            await asyncio.wait_for(empty, SECONDS_TO_LEAVE)
