"""Work of many small steps on a CPU, piece by piece, each by one thread: to share out every single step among
threads takes longer than the steps, and beside a busy program many times as long.
"""

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import torch


@contextmanager
def one_thread() -> Iterator[int]:
    """Inside, torch shares no operation among threads.

    Yields:
        How many it had.
    """
    num_threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield num_threads
    finally:
        torch.set_num_threads(num_threads)


def in_threads(starts: range, work: Callable[[int], None], done: Callable[[int], None] = lambda _: None) -> None:
    """Do all pieces, as many at a time as torch has threads. There torch is in inference mode if it is here:
    tensors made in that mode may not be written to outside of it.

    Args:
        starts: what each piece is known by.
        work: does one; in any thread. What it raises goes through.
        done: told of each in their order, when it and all before it are done; in this thread.
    """
    with one_thread() as num_threads:
        if len(starts) < 2 or num_threads == 1:
            for start in starts:
                work(start)
                done(start)
            return
        infers = torch.is_inference_mode_enabled()

        def work_likewise(start: int) -> None:
            with torch.inference_mode(infers):
                work(start)

        with ThreadPoolExecutor(num_threads) as threads:
            for start, _ in zip(starts, threads.map(work_likewise, starts), strict=True):
                done(start)
