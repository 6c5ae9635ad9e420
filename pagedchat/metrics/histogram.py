"""A histogram that costs little to add to: one binary search. Knows no names and no Prometheus."""

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import accumulate


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
