"""What is declared of one kernel file, and the variants that follow from it. Compiles nothing."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum, auto
from itertools import product

from pagedchat.jit.variant import Constant, Variant

Constants = Mapping[str, Constant]
Choices = Mapping[str, Sequence[Constant]]
"""Constants with the values they take."""


@dataclass(frozen=True, slots=True)
class Limit:
    """Variants that some architectures cannot do, or need not."""

    why: str
    architectures: frozenset[str]
    but: bool = False
    """Whether it holds on all but these."""
    where: Choices = field(default_factory=dict)
    """Which variants: those whose constants are among these; all of them if empty."""

    def holds_on(self, architecture: str) -> bool:
        """Whether `architecture` is concerned."""
        return (architecture in self.architectures) != self.but

    def forbids(self, constants: Constants, architecture: str) -> bool:
        """Whether there is no such variant for `architecture`."""
        return self.holds_on(architecture) and among(constants, self.where)


@dataclass(frozen=True, slots=True)
class Tuning:
    """Constants that belong together: the shape of a tile, warps, stages."""

    constants: Constants
    where: Choices = field(default_factory=dict)
    """What it is for: constants among these; anything if empty."""


class Use(Enum):
    """Who launches a kernel: what decides when it is compiled."""

    ANY_MODEL = auto()
    """Eager steps of every model."""
    TENSOR_CORES = auto()
    """Eager steps of models whose type the GPU multiplies on tensor cores."""
    CUDA_CORES = auto()
    """Eager steps of all other models."""
    CAPTURED_STEPS = auto()
    """Captured steps alone: a rehearsal finds out which variants they need, as that depends on a model's width."""
    WHERE_ASKED = auto()
    """Steps of requests that ask for what few do: built behind the loading, when nobody waits for it."""
    LIBRARY = auto()
    """No step; users of the ops."""


@dataclass(frozen=True, slots=True)
class KernelFile:
    """One `.cu` file: its entry points, its constants with all values they take, what it cannot do."""

    stem: str
    entries: tuple[str, ...]
    use: Use
    constants: Choices = field(default_factory=dict)
    tunings: tuple[Tuning, ...] = (Tuning({}),)
    limits: tuple[Limit, ...] = ()

    def why_not(self, constants: Constants, architecture: str) -> str:
        """Why `architecture` has no variant with these constants; empty if it has."""
        return next((limit.why for limit in self.limits if limit.forbids(constants, architecture)), "")

    def variants(self, architecture: str, **known: Constant) -> Iterator[Variant]:
        """All variants with the constants that are known: every value of the others, every tuning that fits."""
        choices = [[known[name]] if name in known else values for name, values in self.constants.items()]
        for values in product(*choices):
            constants = dict(zip(self.constants, values, strict=True))
            for _, tuned in self._tuned(constants, architecture):
                yield Variant.of(self.stem, **tuned)

    def covering(self, architecture: str) -> list[Variant]:
        """A few variants in which every value of every constant occurs at least once, unless a limit forbids it.

        Variant i takes value i of each constant. When a constant starts over, it starts one further for each
        constant before it, so that two with equally many values do not always meet the same partner. Tunings that
        fit take turns.
        """
        uses = [0] * len(self.tunings)
        variants = []
        for i in range(max([1, *map(len, self.constants.values())])):
            constants = {
                name: values[(i + rank * (i // len(values))) % len(values)]
                for rank, (name, values) in enumerate(self.constants.items())
            }
            fitting = dict(self._tuned(constants, architecture))
            if fitting:
                chosen = min(fitting, key=uses.__getitem__)
                uses[chosen] += 1
                variants.append(Variant.of(self.stem, **fitting[chosen]))
        return variants

    def _tuned(self, constants: Constants, architecture: str) -> Iterator[tuple[int, Constants]]:
        """Number of each tuning that fits, and the constants together with its own."""
        for number, tuning in enumerate(self.tunings):
            tuned = {**constants, **tuning.constants}
            if among(constants, tuning.where) and not self.why_not(tuned, architecture):
                yield number, tuned


def among(constants: Constants, where: Choices) -> bool:
    """Whether every constant that `where` speaks of has one of its values."""
    return all(constants.get(name) in values for name, values in where.items())
