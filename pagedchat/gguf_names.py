"""What the files of a GGUF model are called where it is split over several, as llama.cpp names them:
`NAME-00001-of-00003.gguf`. Opens none.
"""

import re
from collections.abc import Iterable
from typing import NamedTuple

_PART = re.compile(r"(.+)-([0-9]{5})-of-([0-9]{5})(\.gguf)", re.IGNORECASE)


class PartName(NamedTuple):
    """The name of one part."""

    stem: str
    """What all parts have in common."""
    number: int
    """From 1."""
    num_parts: int
    """Of the model."""
    suffix: str

    def other(self, number: int) -> str:
        """What another part of the same model is called."""
        return f"{self.stem}-{number:05d}-of-{self.num_parts:05d}{self.suffix}"


class GgufNames(NamedTuple):
    """The files of one model."""

    files: tuple[str, ...]
    """Those that are there, in order."""
    num_parts: int
    """That there should be."""


def part_name(file: str) -> PartName | None:
    """What a file's name says of it; None where it is not the name of a part."""
    found = _PART.fullmatch(file)
    if found is None:
        return None
    named = PartName(found[1], int(found[2]), int(found[3]), found[4])
    return named if 1 <= named.number <= named.num_parts else None


def gguf_models(files: Iterable[str]) -> list[GgufNames]:
    """Which models the files of a folder are. What only goes with one, for images, is none."""
    found: dict[str, list[str]] = {}
    for file in sorted(files):
        if file.lower().endswith(".gguf") and "mmproj" not in file.lower():
            named = part_name(file)
            found.setdefault(named.other(1) if named else file, []).append(file)
    counts = {first: named.num_parts if (named := part_name(first)) else 1 for first in found}
    return [GgufNames(tuple(parts), counts[first]) for first, parts in found.items()]
