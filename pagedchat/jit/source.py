"""A kernel file together with the project headers that it includes, directly or through others."""

import re
from dataclasses import dataclass
from pathlib import Path

_INCLUDE = re.compile(r'^[ \t]*#[ \t]*include[ \t]+"([^"]+)"', re.MULTILINE)


@dataclass(frozen=True, slots=True)
class KernelSource:
    """All the project's text that one cubin is made of."""

    path: Path
    """The `.cu` file; compiler messages and profilers name it."""
    text: str
    headers: dict[str, str]
    """Text of every header by its path inside the kernel folder, in the order of inclusion."""


def read_source(folder: Path, stem: str) -> KernelSource:
    """Read `folder/stem.cu` and its headers.

    Headers in angle brackets belong to CUDA and are left to the compiler; so is a header that does not exist, whose
    absence the compiler reports with file and line.

    Raises:
        OSError: the file cannot be read.
    """
    path = folder / f"{stem}.cu"
    text = path.read_text(encoding="utf-8")
    headers: dict[str, str] = {}
    _collect(folder, text, headers)
    return KernelSource(path, text, headers)


def _collect(folder: Path, text: str, headers: dict[str, str]) -> None:
    for name in _INCLUDE.findall(text):
        if name not in headers and (folder / name).is_file():
            headers[name] = (folder / name).read_text(encoding="utf-8")
            _collect(folder, headers[name], headers)
