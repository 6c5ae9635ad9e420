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
    folder: Path
    """The kernel folder, which the names of headers start from."""
    text: str
    headers: dict[str, str]
    """Text of every header by its path inside the kernel folder, as it is included, in the order of inclusion."""


def read_source(folder: Path, stem: str) -> KernelSource:
    """Read the kernel file `stem`.cu, which lies somewhere in `folder`, and its headers.

    Headers in angle brackets belong to CUDA and are left to the compiler; so is a header that does not exist, whose
    absence the compiler reports with file and line.

    Raises:
        OSError: the file cannot be read.
    """
    path = kernel_path(folder, stem)
    text = path.read_text(encoding="utf-8")
    headers: dict[str, str] = {}
    _collect(folder, text, headers)
    return KernelSource(path, folder, text, headers)


def kernel_path(folder: Path, stem: str) -> Path:
    """Where the kernel file of this stem lies in `folder`; where it might, if there is none. Stems are unique."""
    return next(folder.rglob(f"{stem}.cu"), folder / f"{stem}.cu")


def _collect(folder: Path, text: str, headers: dict[str, str]) -> None:
    for name in _INCLUDE.findall(text):
        if name not in headers and (folder / name).is_file():
            headers[name] = (folder / name).read_text(encoding="utf-8")
            _collect(folder, headers[name], headers)
