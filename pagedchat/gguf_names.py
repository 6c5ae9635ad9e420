"""What the files of a GGUF model are called, as llama.cpp names them: `NAME-Q4_K_M.gguf`, and where it is split
over several `NAME-Q4_K_M-00001-of-00003.gguf`. Opens none.
"""

import re
from collections.abc import Iterable
from typing import NamedTuple

_PART = re.compile(r"(.+)-([0-9]{5})-of-([0-9]{5})(\.gguf)", re.IGNORECASE)
_TAG = re.compile(
    r"(?<![A-Z0-9])(?:UD-)?(?:I?Q[1-9]|TQ[12]|BF16|FP?(?:8|16|32)|MXFP4|NVFP4)(?:_[A-Z0-9]+)*(?![A-Z0-9_])"
)
"""How weights are stored, in capital letters; `UD-` stands before it where tensors differ in that."""


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

    @property
    def is_whole(self) -> bool:
        """Whether all parts are there."""
        return len(self.files) == self.num_parts

    @property
    def stem(self) -> str:
        """What its files have in common, the folders before them too."""
        named = part_name(self.files[0])
        return named.stem if named else self.files[0][: -len(".gguf")]

    @property
    def tag(self) -> str:
        """How its weights are stored, in capital letters: `Q4_K_M`; empty where its name does not say so."""
        return _tag(self.stem)


def part_name(file: str) -> PartName | None:
    """What a file's name says of it; None where it is not the name of a part."""
    found = _PART.fullmatch(file)
    if found is None:
        return None
    named = PartName(found[1], int(found[2]), int(found[3]), found[4])
    return named if 1 <= named.number <= named.num_parts else None


def gguf_models(files: Iterable[str]) -> list[GgufNames]:
    """Which models the files of a folder are, or of several, by their paths. What only goes with one is none."""
    found: dict[str, list[str]] = {}
    for file in sorted(files):
        if file.lower().endswith(".gguf") and not _goes_with_one(file):
            named = part_name(file)
            found.setdefault(named.other(1) if named else file, []).append(file)
    counts = {first: named.num_parts if (named := part_name(first)) else 1 for first in found}
    return [GgufNames(tuple(parts), counts[first]) for first, parts in found.items()]


def _goes_with_one(file: str) -> bool:
    """Whether it is for images, or is what weights were rounded by."""
    return "mmproj" in file.lower() or ("imatrix" in file.lower() and not _tag(file[: -len(".gguf")]))


def _tag(stem: str) -> str:
    found = _TAG.findall(stem.upper())
    return found[-1] if found else ""
