"""Fewer searches for garbage while an engine runs.

A step of many sequences makes and drops thousands of small objects, few of them in cycles. With Python's own
thresholds the collector searches several times a step, which at 256 sequences is a tenth of the host's time.
"""

import gc
from collections.abc import Iterator
from contextlib import contextmanager

_YOUNG = 50_000
"""Objects more made than dropped, from which on the young ones are searched: once in some dozens of steps."""
_OLDER = 50
"""Searches of one generation to one of the next."""


@contextmanager
def rare_collections() -> Iterator[None]:
    """Higher thresholds inside, for the whole process; the present ones again afterwards."""
    before = gc.get_threshold()
    gc.set_threshold(max(before[0], _YOUNG) if before[0] else 0, max(before[1], _OLDER), max(before[2], _OLDER))
    try:
        yield
    finally:
        gc.set_threshold(*before)
