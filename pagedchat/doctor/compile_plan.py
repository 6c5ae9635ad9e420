"""Which variants are compiled for which architecture when kernels are checked for all of them. Compiles nothing.

CUDA's headers and the kernels' sources look different to sm_75, to sm_80 and to sm_90, and to no other one: what
compiles for one of these does so for its relatives, but for what their assembler may have against it. So relatives
take turns: each compiles a part of every kernel's variants, together they compile all. So does sm_80 with a kernel
that looks to it as it does to sm_90.
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby
from pathlib import Path

from pagedchat.jit.architecture import ARCHITECTURES
from pagedchat.jit.source import read_source
from pagedchat.jit.variant import Variant
from pagedchat.ops.catalogue import covering_set
from pagedchat.resources import resource_dir

_TURNS = {"sm_86": 0, "sm_89": 1, "sm_120": 2, "sm_100": 3, "sm_80": 3}
"""Which variant is a relative's first; the next is the fourth behind it."""
_ASKS = re.compile(r"__CUDA_ARCH__ >= (\d+)0\b")


def plan_compiling(architectures: Sequence[str], folder: Path | None = None) -> list[tuple[Variant, str]]:
    """Variants and architectures that show whether the kernels compile.

    Args:
        architectures: all, of which relatives take turns; or some, each with the whole covering set.
        folder: of the kernels; those of the package by default.
    """
    take_turns = set(architectures) >= set(ARCHITECTURES)
    whole = [(variant, name) for name in architectures for variant in covering_set(name)]
    return list(_in_turns(whole, folder or resource_dir("kernels"))) if take_turns else whole


def _in_turns(whole: Iterable[tuple[Variant, str]], folder: Path) -> Iterator[tuple[Variant, str]]:
    """Of a relative's variants of each kernel its turn, one at least; all of the other architectures'."""
    headers: dict[str, str] = {}
    for (stem, architecture), group in groupby(whole, key=lambda pair: (pair[0].stem, pair[1])):
        pairs = list(group)
        first = _TURNS.get(architecture)
        if architecture == "sm_80" and max(asked_for(folder, stem, headers), default=0) > 80:
            first = None
        yield from pairs if first is None else pairs[first::4] or pairs[:1]


def asked_for(folder: Path, stem: str, headers: dict[str, str]) -> set[int]:
    """Architectures from which on a kernel looks different, 90 for sm_90; none if the file cannot be read, of which
    whoever compiles it complains.

    Args:
        folder: of the kernels.
        stem: of the kernel's file.
        headers: that were read for other kernels, by path; grows.
    """
    try:
        source = read_source(folder, stem, headers)
    except (OSError, UnicodeDecodeError):
        return set()
    return {int(number) for text in (source.text, *source.headers.values()) for number in _ASKS.findall(text)}
