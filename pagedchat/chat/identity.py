"""Numbers by which chats and turns are known for good: in this run, in later ones, and in other programs beside it.

They grow with time, so that neighbours on disk are neighbours in time. Within a process they grow whatever the
clock does; of two processes the random part keeps them apart. Knows no chat and no disk.
"""

import os
import threading
import time

_RANDOM_BITS = 22
_TIME_BITS = 41
"""Milliseconds of 69 years; with the random part 63 bits, which any database takes as a number."""
_BEGINNING_MS = 1_704_067_200_000
"""The year 2024."""

_lock = threading.Lock()
_last = 0


def _random_bits() -> int:
    return int.from_bytes(os.urandom(4)) >> (32 - _RANDOM_BITS)


def new_id() -> int:
    """A number that nobody had before."""
    global _last  # noqa: PLW0603 - one row of numbers for the process
    milliseconds = max(0, time.time_ns() // 1_000_000 - _BEGINNING_MS) % (1 << _TIME_BITS)
    candidate = milliseconds << _RANDOM_BITS | _random_bits()
    with _lock:
        _last = max(candidate, _last + 1)
        return _last
