"""Fewer searches for garbage while an engine runs.

A step of many sequences makes and drops thousands of small objects, few of them in cycles. With Python's own
thresholds the collector searches several times a step, which at 256 sequences is a tenth of the host's time.
"""

import gc
import threading
from collections.abc import Iterator
from contextlib import contextmanager

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

    Whoever came first need not leave last: replies that are streamed in turns end in any order.
    """
    _depth.enter()
    try:
        yield
    finally:
        _depth.leave()
