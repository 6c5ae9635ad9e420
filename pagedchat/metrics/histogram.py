"""A histogram that costs little to add to: one binary search; and the ranges of ours. Knows no Prometheus."""

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import accumulate

# Upper bounds of the ranges: vLLM's, so that boards made for it show the same steps.
TIME_TO_FIRST_TOKEN = (
    0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0, 20.0, 40.0, 80.0,
    160.0, 640.0, 2560.0,
)  # fmt: skip
TIME_PER_TOKEN = (
    0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0, 20.0, 40.0, 80.0,
)  # fmt: skip
LATENCY = (
    0.3, 0.5, 0.8, 1.0, 1.5, 2.0, 2.5, 5.0, 10.0, 15.0, 20.0, 30.0, 40.0, 50.0, 60.0, 120.0, 240.0, 480.0, 960.0,
    1920.0, 7680.0,
)  # fmt: skip
ITERATION_TOKENS = (1, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192, 16384)


@dataclass(slots=True)
class Histogram:
    """How many values fell into which range."""

    bounds: Sequence[float]
    """Upper bounds of the ranges, rising, each part of its range; the last range has none."""
    total: float = 0.0
    """Sum of all values."""
    counts: list[int] = field(init=False)
    """One for each range; not cumulative."""

    def __post_init__(self) -> None:
        self.counts = [0] * (len(self.bounds) + 1)

    def add(self, value: float, times: int = 1) -> None:
        """Take in a value that occurred so many times."""
        self.counts[bisect_left(self.bounds, value)] += times
        self.total += value * times

    def cumulative(self) -> list[tuple[float, int]]:
        """Each upper bound with the number of values up to it; the last one is infinite."""
        return list(zip([*self.bounds, float("inf")], accumulate(self.counts), strict=True))


def one_two_five(largest: int) -> list[float]:
    """1, 2, 5, 10, 20, 50, ... up to `largest`."""
    bounds: list[float] = []
    power = 1
    while power <= largest:
        bounds += [factor * power for factor in (1, 2, 5) if factor * power <= largest]
        power *= 10
    return bounds
