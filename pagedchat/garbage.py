"""When Python searches for unreachable cycles: not in the middle of what somebody waits for.

Left alone, it searches whenever enough objects were made. Six places know better:

- While modules are imported nothing becomes garbage: `no_collections`, `imports`.
- Nor does it until the first frame of a screen, which is waited for: `no_collections`, until `Garbage` begins.
- What is there after the first loading stays, and need not be looked through again: `freeze_once`.
- When an engine is freed, everything is looked through, if that is what it takes: `search_everything`.
- While an engine runs there is much to make and to drop, but little of it in cycles: `rare_collections`.
- Where a screen is drawn, a full search waits until nobody writes and nobody reads: `Garbage`.

Knows objects only; nothing of engines and screens.
"""

import gc
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache

# --- while a program starts, and a model is loaded --------------------------------------------------


@contextmanager
def no_collections() -> Iterator[None]:
    """No search inside. What is imported stays, and looking through it again and again takes a tenth of the time of
    importing it."""
    collects = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collects:
            gc.enable()


@contextmanager
def imports() -> Iterator[None]:
    """No search inside, and what was made inside is left out of all later ones: modules, which stay."""
    with no_collections():
        yield
        gc.freeze()  # the first search afterwards would look through all of it


@cache
def freeze_once() -> None:
    """Leave out of all later searches what is there after the first loading, above all the modules.

    A full search would look through them for a tenth of a second, in the middle of a step. Not done again: by then
    a model that nobody has any more may be among what waits to be collected.
    """
    gc.freeze()


def search_everything() -> None:
    """A full search, what was frozen included: an engine is freed, and some of it may be part of a cycle.

    The next loading is a first one again.
    """
    gc.unfreeze()
    freeze_once.cache_clear()
    gc.collect()


# --- while an engine runs ---------------------------------------------------------------------------

_YOUNG = 50_000
"""Objects more made than dropped, from which on the young ones are searched: once in some dozens of steps."""
_OLDER = 50
"""Searches of one generation to one of the next."""


class _Depth:
    """How many are inside, and what the thresholds were before the first of them."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._inside = 0
        self._before = gc.get_threshold()

    def enter(self) -> None:
        with self._lock:
            if self._inside == 0:
                self._before = gc.get_threshold()
                young, *older = self._before
                gc.set_threshold(max(young, _YOUNG) if young else 0, *[max(count, _OLDER) for count in older])
            self._inside += 1

    def leave(self) -> None:
        with self._lock:
            self._inside -= 1
            if self._inside == 0:
                gc.set_threshold(*self._before)


_depth = _Depth()


@contextmanager
def rare_collections() -> Iterator[None]:
    """Higher thresholds inside, for the whole process; the former ones when the last of several has left.

    A step of many sequences makes and drops thousands of small objects, few of them in cycles. With Python's own
    thresholds it searches several times a step, which at 256 sequences is a tenth of the host's time. Whoever came
    first need not leave last: replies that are streamed in turns end in any order.
    """
    _depth.enter()
    try:
        yield
    finally:
        _depth.leave()


# --- behind a screen --------------------------------------------------------------------------------

PAUSE = 2.0
"""Seconds between two looks: few enough that little has survived."""
ALL_AT_LATEST = 600.0
"""Seconds after which everything is searched although the program is never idle."""
_NEVER = 1_000_000
"""So many searches of the young ones before Python searches everything by itself."""


class Garbage:
    """Decides what is searched when, so that nobody has to wait for it.

    A full search of all objects takes a tenth of a second in which no key is answered. Here the young objects are
    searched as ever; every few seconds those that have survived are searched once and then left out of all later
    searches; everything is searched again when nothing else is done.

    Args:
        busy: whether the user may be waiting for something.
        clock: seconds.
    """

    def __init__(self, busy: Callable[[], bool], clock: Callable[[], float] = time.monotonic) -> None:
        self._busy = busy
        self._clock = clock
        self._searched = clock()
        """When everything was searched."""
        self._was_busy = True

    async def run(self) -> None:
        """Until cancelled; then Python does as before. What is there at the beginning, the screen, stays; where
        nothing was searched until now the young objects are from now on."""
        import asyncio  # noqa: PLC0415 - whoever runs this has it, and an engine does without

        before = gc.get_threshold()
        gc.set_threshold(before[0], before[1], _NEVER)
        gc.freeze()
        gc.enable()
        try:
            while True:
                await asyncio.sleep(PAUSE)
                self.look()
        finally:
            gc.unfreeze()
            gc.set_threshold(*before)

    def look(self) -> bool:
        """Search now; returns whether everything was searched."""
        busy, was_busy = self._busy(), self._was_busy
        self._was_busy = busy
        late = self._clock() >= self._searched + ALL_AT_LATEST
        if not busy and not was_busy and not late:
            return False
        everything = late or not busy
        if everything:
            gc.unfreeze()
            self._searched = self._clock()
        gc.collect()
        gc.freeze()
        return everything
