"""Events that have come from the engine process and wait for their one listener.

A listener that is slower than the engine for long would fill memory with them: above a limit the process is not
listened to until half of them are taken. Knows how much an event weighs, not what is done with it.
"""

import asyncio
from collections.abc import Callable

from pagedchat.events import EngineEvent, Steps

MAX_WAITING = 2_000_000
"""Parts of events: batch entries, cache events. Tens of megabytes; ten seconds of the fastest engine."""


class EventQueue:
    """A queue for one listener.

    Args:
        hold: called with True when no more should come for now, and with False when there is room again.
        limit: parts that may wait.
    """

    def __init__(self, hold: Callable[[bool], None], limit: int = MAX_WAITING) -> None:
        self.limit = limit
        self.is_full = False
        """Whether no more should come for now; what comes is taken all the same."""
        self._hold = hold
        self._queue: asyncio.Queue[tuple[EngineEvent | None, int]] = asyncio.Queue()
        """Events, each with the number of its parts."""
        self.num_parts = 0
        """Of all that waits."""

    def put(self, event: EngineEvent | None) -> None:
        """One more; None is the last one."""
        parts = num_parts(event)
        self._queue.put_nowait((event, parts))
        self.num_parts += parts
        if self.num_parts > self.limit and not self.is_full:
            self.is_full = True
            self._hold(True)

    async def get(self) -> EngineEvent | None:
        """The next one, as soon as there is one."""
        event, parts = await self._queue.get()
        self.num_parts -= parts
        if self.is_full and self.num_parts <= self.limit // 2:
            self.is_full = False
            self._hold(False)
        return event

    def empty(self) -> bool:
        """Whether nothing waits."""
        return self._queue.empty()


def num_parts(event: EngineEvent | None) -> int:
    """How much an event weighs: of steps their batch entries and cache events."""
    if type(event) is not Steps:
        return 1
    return sum([report.num_parts for report in event.reports])
