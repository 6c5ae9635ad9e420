"""The GPU's side of decode steps: what kernels ran when, and what that says of a step. Pure arithmetic on times.

Kernels of a captured step may overlap (programmatic dependent launch): the next one is launched while this one ends
and waits for it. So a kernel is charged with the time by which it moved the end of all work forward::

    |--- first ---------|                 first: all of it
             |--- second -------|         second: what stands out past the first
                                  gap
                                   |---   third

Charges and gaps add up to the time from the first kernel's start to the last one's end.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from pagedchat.bench.step.kinds import WORK, kind_of
from pagedchat.bench.step.products import ProductShare, places_of, weights_read


@dataclass(frozen=True, slots=True)
class Kernel:
    """One kernel or copy on the GPU; times in microseconds."""

    name: str
    start: float
    end: float
    launch: int
    """Number of the launch it came from: all kernels of a replayed graph have the same."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KindShare:
    """All kernels of one kind in a step."""

    kind: str
    us: float
    """Charged to them."""
    count: float
    """Launches of them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StepTrace:
    """A step on the GPU: averages over all that were traced, in microseconds."""

    num_steps: int
    period_us: float
    """From one step's first kernel to the next one's."""
    kinds: list[KindShare]
    """The longest first."""
    gaps_us: float
    """Between kernels of a step."""
    idle_us: float
    """Between the last kernel of a step and the first of the next one."""
    products: tuple[ProductShare, ...] = ()
    """In the order of a layer; none where they are not told apart."""

    @property
    def busy_us(self) -> float:
        """All kernels."""
        return sum(share.us for share in self.kinds)

    @property
    def idle_percent(self) -> float:
        """Share of the period in which the GPU waits for a step."""
        return 100 * self.idle_us / self.period_us


def read_steps(
    kernels: Iterable[Kernel], num_steps: int, weights: Mapping[str, int] | None = None, num_layers: int = 0
) -> StepTrace | None:
    """Sum up the steps of a trace; None if it does not show one launch for each of them.

    Args:
        kernels: of all streams, in any order.
        num_steps: that were run.
        weights: bytes of each product's weights, in the order of a layer, the head last; None: products are not
            told apart.
        num_layers: of the model.
    """
    ordered = sorted(kernels, key=lambda kernel: kernel.start)
    firsts = _first_kernels(ordered)
    if not 2 <= len(firsts) <= num_steps + 1:
        return None
    begin, last = firsts[0], firsts[-1]  # the last step serves as the end of the one before
    sums, order = _Sums(ordered[begin].start), list(weights or ())[:-1]
    for start, stop in pairwise(firsts):
        step = ordered[start:stop]
        places = places_of([kernel.name for kernel in step], num_layers, order) if weights else []
        for number, kernel in enumerate(step):
            sums.add(kernel, begins_step=number == 0, product=places[number] if places else "")
    sums.idle += sums.gap_before(ordered[last])
    read = weights_read([kernel.name for kernel in ordered[begin:last]], weights or {})
    return sums.per_step(len(firsts) - 1, ordered[last].start - ordered[begin].start, read)


def _first_kernels(ordered: Sequence[Kernel]) -> list[int]:
    """Where the steps begin: indices of the first kernel of every launch in which the model works."""
    places: defaultdict[int, list[int]] = defaultdict(list)
    for index, kernel in enumerate(ordered):
        places[kernel.launch].append(index)
    steps = (indices for indices in places.values() if any(kind_of(ordered[i].name) in WORK for i in indices))
    return sorted(indices[0] for indices in steps)


class _Sums:
    """Adds kernels up in the order of their starts."""

    def __init__(self, start: float) -> None:
        self._end = start
        self._charged: defaultdict[str, float] = defaultdict(float)
        self._counts: defaultdict[str, int] = defaultdict(int)
        self._products: defaultdict[str, float] = defaultdict(float)
        self._gaps = 0.0
        self.idle = 0.0

    def gap_before(self, kernel: Kernel) -> float:
        """How long nothing had run when it began."""
        return max(0.0, kernel.start - self._end)

    def add(self, kernel: Kernel, *, begins_step: bool, product: str) -> None:
        """One more, which makes a product or ""."""
        gap, kind = self.gap_before(kernel), kind_of(kernel.name)
        if begins_step:
            self.idle += gap
        else:
            self._gaps += gap
        charged = max(0.0, kernel.end - max(self._end, kernel.start))
        self._charged[kind] += charged
        if product:
            self._products[product] += charged
        self._counts[kind] += 1
        self._end = max(self._end, kernel.end)

    def per_step(self, count: int, whole: float, weights: Mapping[str, int]) -> StepTrace:
        """Averages over `count` steps that took `whole` microseconds together."""
        shares = [
            KindShare(kind=kind, us=us / count, count=self._counts[kind] / count)
            for kind, us in self._charged.items()
        ]
        return StepTrace(
            num_steps=count,
            period_us=whole / count,
            kinds=sorted(shares, key=lambda share: -share.us),
            gaps_us=self._gaps / count,
            idle_us=self.idle / count,
            products=tuple(
                ProductShare(name=name, us=self._products[name] / count, weight_bytes=num_bytes)
                for name, num_bytes in weights.items()
                if name in self._products
            ),
        )
