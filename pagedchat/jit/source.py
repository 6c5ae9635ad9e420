"""A kernel file together with the project headers that it includes, directly or through others."""

import re
from dataclasses import dataclass
from functools import cache
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


def read_source(folder: Path, stem: str, known: dict[str, str] | None = None) -> KernelSource:
    """Read the kernel file `stem`.cu, which lies somewhere in `folder`, and its headers.

    Headers in angle brackets belong to CUDA and are left to the compiler; so is a header that does not exist, whose
    absence the compiler reports with file and line.

    Args:
        folder: the kernels.
        stem: of the file.
        known: headers of `folder` that were read for other files, by path; grows.

    Raises:
        OSError: the file cannot be read.
    """
    path = kernel_path(folder, stem)
    text = path.read_text(encoding="utf-8")
    headers: dict[str, str] = {}
    _collect(folder, text, headers, {} if known is None else known)
    return KernelSource(path, folder, text, headers)


def kernel_path(folder: Path, stem: str) -> Path:
    """Where the kernel file of this stem lies in `folder`; where it might, if there is none. Stems are unique.

    A folder is walked through once: threads that compile would do it for each kernel, while others want to run.
    """
    known = _kernels_in(folder).get(stem)
    if known is not None and known.is_file():
        return known
    return next(folder.rglob(f"{stem}.cu"), folder / f"{stem}.cu")


@cache
def _kernels_in(folder: Path) -> dict[str, Path]:
    """Those that are there when it is first asked for one."""
    return {path.stem: path for path in folder.rglob("*.cu")}


def _collect(folder: Path, text: str, headers: dict[str, str], known: dict[str, str]) -> None:
    for name in _INCLUDE.findall(text):
        if name in headers:
            continue
        if name not in known and (folder / name).is_file():
            known[name] = (folder / name).read_text(encoding="utf-8")
        if name in known:
            headers[name] = known[name]
            _collect(folder, headers[name], headers, known)
