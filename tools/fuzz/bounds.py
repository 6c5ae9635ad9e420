"""What one example may take: processor time, and memory on top of what the process had at its most before."""

import resource
import signal
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

SECONDS = 5.0
"""Of processor time, for what takes milliseconds: machines are noisy."""
PATIENCE = 8
"""So many times as long may pass where a disk, or others that use the processor, keep the process waiting."""
MEBIBYTES = 256.0
_RSS_UNIT = 1 if sys.platform == "darwin" else 1024


class TooMuchError(Exception):
    """An example took more than it may. Nothing that is tested knows it, so nothing catches it by name."""


@contextmanager
def bounded(seconds: float = SECONDS, mebibytes: float = MEBIBYTES) -> Iterator[None]:
    """Inside, an example runs; only in the main thread, and where no alarm is set.

    Raises:
        TooMuchError: it takes longer, waits for `PATIENCE` times as long, or took more memory.
    """

    def watch(_signal: int, _frame: FrameType | None) -> None:
        complain_if_late()

    def complain_if_late() -> None:
        if time.process_time() - computed > seconds:
            raise TooMuchError(f"It takes longer than {seconds} s.")
        if time.monotonic() - started > PATIENCE * seconds:
            raise TooMuchError(f"It waits longer than {PATIENCE * seconds} s.")

    before, started, computed = _most_memory(), time.monotonic(), time.process_time()
    previous = signal.signal(signal.SIGALRM, watch)
    signal.setitimer(signal.ITIMER_REAL, seconds, min(seconds, 0.5))  # again, should nobody hear the exception
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, previous)
    complain_if_late()
    taken = (_most_memory() - before) / 1024**2
    if taken > mebibytes:
        raise TooMuchError(f"It took {taken:.0f} MiB.")


def _most_memory() -> int:
    """Bytes."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * _RSS_UNIT
