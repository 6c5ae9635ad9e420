"""What waits to be heard by one client. However slowly that reads, nobody else waits, and memory has a bound.

Text of one reply that nobody has heard yet is one piece. Steps that become too many are dropped: the client is
*behind* then, hears no more of them, and what it hears once it has heard all else is the cache as it is by then.
Knows no engine.
"""

import asyncio
from collections import deque
from collections.abc import Callable

from pagedchat.events import (
    CacheKeyframe,
    EngineEvent,
    EngineNotice,
    LoadProgress,
    Steps,
    TextDelta,
    TokenTexts,
)

MAX_WAITING = 200_000
"""Parts of steps, that is batch entries and cache events: megabytes, and a second of the fastest engine."""
MAX_NOTICES = 100
"""Sentences of the engine to everybody."""
_OF_THE_CACHE = (Steps, TokenTexts, CacheKeyframe)


class ClientQueue:
    """Events for one client.

    Args:
        fresh: what brings it up to date when it was behind: texts of tokens, and a keyframe.
        follows: whether it hears of steps at all.
        limit: parts of steps that may wait.
    """

    def __init__(
        self, fresh: Callable[[], list[EngineEvent]], *, follows: bool = True, limit: int = MAX_WAITING
    ) -> None:
        self._fresh = fresh
        self.follows = follows
        """Whether it hears of the cache at all."""
        self._limit = limit
        self._waiting: deque[list[EngineEvent | None]] = deque()
        """Each in a box, in which text may still grow."""
        self._open: dict[int, list[EngineEvent | None]] = {}
        """Boxes with text, by request."""
        self._num_parts = self._num_notices = 0
        self._behind = False
        self._something = asyncio.Event()

    @property
    def takes_steps(self) -> bool:
        """Whether steps are of any use to it now."""
        return self.follows and not self._behind

    def __len__(self) -> int:
        return len(self._waiting)

    # --- one end ------------------------------------------------------------------------------------

    def put(self, event: EngineEvent | None) -> None:
        """One more; None is the last one."""
        if isinstance(event, _OF_THE_CACHE):
            self._put_cache(event)
        elif isinstance(event, TextDelta):
            self._put_text(event)
        elif not self._is_one_too_many(event):
            self._add(event)

    def start_behind(self) -> None:
        """What it hears of the cache first is a keyframe, once it has heard what waits."""
        if self.follows:
            self._drop_cache()
            self._behind = True
            self._something.set()

    def clear(self) -> None:
        """Forget all that waits."""
        self._waiting.clear()
        self._open.clear()
        self._num_parts = self._num_notices = 0
        self._behind = False

    def _put_cache(self, event: EngineEvent) -> None:
        if not self.takes_steps:
            return
        self._num_parts += _parts(event)
        if self._num_parts > self._limit:
            self.start_behind()
        else:
            self._add(event)

    def _put_text(self, delta: TextDelta) -> None:
        box = self._open.get(delta.request_id)
        before = box[0] if box is not None else None
        if box is not None and isinstance(before, TextDelta):
            box[0] = before.then(delta)
        else:
            self._open[delta.request_id] = self._add(delta)

    def _add(self, event: EngineEvent | None) -> list[EngineEvent | None]:
        box = [event]
        self._waiting.append(box)
        self._something.set()
        return box

    def _is_one_too_many(self, event: EngineEvent | None) -> bool:
        """Of sentences some are enough, of progress the last word."""
        if isinstance(event, LoadProgress) and self._waiting and isinstance(self._waiting[-1][0], LoadProgress):
            self._waiting[-1][0] = event
            return True
        if isinstance(event, EngineNotice):
            if self._num_notices >= MAX_NOTICES:
                return True
            self._num_notices += 1
        return False

    def _drop_cache(self) -> None:
        self._waiting = deque(box for box in self._waiting if not isinstance(box[0], _OF_THE_CACHE))
        self._num_parts = 0

    # --- the other ----------------------------------------------------------------------------------

    async def get(self) -> EngineEvent | None:
        """The next one, as soon as there is one."""
        while not self._has_some():
            self._something.clear()
            await self._something.wait()
        return self._take()

    def take_one(self) -> EngineEvent | None:
        """The next one, where there is one; the end is left to `get`."""
        return self._take() if self._has_some() and self._waiting[0][0] is not None else None

    def take(self) -> list[EngineEvent | None]:
        """All that there is."""
        events = []
        while self._has_some():
            events.append(self._take())
        return events

    def _has_some(self) -> bool:
        """After it was brought up to date, where it is behind and has heard all else."""
        if self._behind and not self._waiting:
            self._behind = False
            for event in self._fresh():
                self._put_fresh(event)
        return bool(self._waiting)

    def _take(self) -> EngineEvent | None:
        (event,) = self._waiting.popleft()
        if isinstance(event, TextDelta):
            self._open.pop(event.request_id, None)
        elif isinstance(event, EngineNotice):
            self._num_notices -= 1
        else:
            self._num_parts -= _parts(event)
        return event

    def _put_fresh(self, event: EngineEvent) -> None:
        """Whatever its size: there is nothing smaller that would do."""
        self._num_parts += _parts(event)
        self._add(event)


def _parts(event: EngineEvent | None) -> int:
    if type(event) is Steps:
        return sum([report.num_parts for report in event.reports])
    return len(event.token_ids) if type(event) is TokenTexts else 0
