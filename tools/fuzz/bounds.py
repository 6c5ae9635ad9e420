"""What one example may take: seconds, and memory on top of what the process had at its most before."""

import resource
import signal
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

SECONDS = 5.0
"""For what takes milliseconds: machines are noisy."""
MEBIBYTES = 256.0
_RSS_UNIT = 1 if sys.platform == "darwin" else 1024


class TooMuchError(Exception):
    """An example took more than it may. Nothing that is tested knows it, so nothing catches it by name."""


@contextmanager
def bounded(seconds: float = SECONDS, mebibytes: float = MEBIBYTES) -> Iterator[None]:
    """Inside, an example runs; only in the main thread, and where no alarm is set.

    Raises:
        TooMuchError: it takes longer, or took more memory.
    """

    def late(_signal: int, _frame: FrameType | None) -> None:
        raise TooMuchError(f"It takes longer than {seconds} s.")

    before, started = _most_memory(), time.monotonic()
    previous = signal.signal(signal.SIGALRM, late)
    signal.setitimer(signal.ITIMER_REAL, seconds, 0.5)  # again, should it come where nobody hears an exception
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, previous)
    if time.monotonic() - started > seconds:
        raise TooMuchError(f"It took longer than {seconds} s.")
    taken = (_most_memory() - before) / 1024**2
    if taken > mebibytes:
        raise TooMuchError(f"It took {taken:.0f} MiB.")


def _most_memory() -> int:
    """Bytes."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * _RSS_UNIT
