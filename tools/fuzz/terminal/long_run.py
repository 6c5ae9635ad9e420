"""Millions of outputs over the cores of a machine: the numbers are dealt out, so every output is drawn once."""

import time
from collections.abc import Iterator
from itertools import chain
from multiprocessing import get_context

from tools.fuzz.terminal.run import Break, Drawing

DEAL = 2000
"""Outputs that a process takes at a time."""
_MOST_SHOWN = 20
_drawings: dict[int, Drawing] = {}


def run_terminal(seed: int, examples: int | None, seconds: float, jobs: int, only: int | None) -> bool:
    """Draw outputs and say how it goes; whether any got out of its pane.

    Args:
        seed: of all of them.
        examples: how many; without it, for so many `seconds`.
        jobs: processes.
        only: the number of the one output to draw.
    """
    if only is not None:
        found = Drawing(seed).output(only)
        print(found or f"Output {only} of seed {seed} stays in its pane.")
        return found is not None
    started, done, num_broken = time.monotonic(), 0, 0
    with get_context("spawn").Pool(jobs) as pool:
        batches = _batches(seed, examples, seconds, jobs)
        for broken, size in chain.from_iterable(pool.imap_unordered(_deal, batch) for batch in batches):
            done += size
            for each in broken[: max(0, _MOST_SHOWN - num_broken)]:
                print(each)
            num_broken += len(broken)
            passed = time.monotonic() - started
            print(
                f"terminal: {done} outputs, {num_broken} got out, {passed:.0f} s, {done / passed:.0f}/s", flush=True
            )
    return num_broken > 0


def _batches(seed: int, examples: int | None, seconds: float, jobs: int) -> Iterator[list[tuple[int, int, int]]]:
    """Deals of `(seed, first, count)`, as many at a time as are sure to be wanted."""
    if examples is not None:
        yield [(seed, first, min(DEAL, examples - first)) for first in range(0, examples, DEAL)]
        return
    end, first = time.monotonic() + seconds, 0
    while time.monotonic() < end:
        yield [(seed, first + number * DEAL, DEAL) for number in range(jobs)]
        first += jobs * DEAL


def _deal(deal: tuple[int, int, int]) -> tuple[list[Break], int]:
    """What of one deal got out."""
    seed, first, size = deal
    if seed not in _drawings:
        _drawings[seed] = Drawing(seed)
    return [found for found in _drawings[seed].outputs(first, size) if found], size
