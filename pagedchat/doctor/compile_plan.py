"""Which variants are compiled for which architecture when kernels are checked for all of them. Compiles nothing.

The kernels' sources look different to sm_75, to sm_80 and to sm_90, and to no other architecture: what compiles for
one of these does so for its relatives, but for what their assembler and their shared memory may have against it. So
relatives take turns: each compiles a part of every kernel's variants, those with the same memory together all of
them.
"""

from collections.abc import Iterable, Sequence
from itertools import groupby

from pagedchat.jit.architecture import ARCHITECTURES
from pagedchat.jit.variant import Variant
from pagedchat.ops.catalogue import covering_set

_TURNS = {"sm_86": (0, 3), "sm_89": (1, 3), "sm_120": (2, 3), "sm_100": (0, 4)}
"""Which variant is a relative's first, and every how many-th it takes from there."""


def plan_compiling(architectures: Sequence[str]) -> list[tuple[Variant, str]]:
    """Variants and architectures that show whether the kernels compile.

    Args:
        architectures: all, of which relatives take turns; or some, each with the whole covering set.
    """
    take_turns = set(architectures) >= set(ARCHITECTURES)
    return [
        (variant, architecture)
        for architecture in architectures
        for variant in _chosen(covering_set(architecture), architecture if take_turns else "")
    ]


def _chosen(variants: Iterable[Variant], relative: str) -> list[Variant]:
    """The turn of `relative` among each kernel's variants, one at least; all of them if it takes no turns."""
    first, step = _TURNS.get(relative, (0, 1))
    by_kernel = (list(group) for _, group in groupby(variants, key=lambda variant: variant.stem))
    return [variant for group in by_kernel for variant in group[first::step] or group[:1]]
