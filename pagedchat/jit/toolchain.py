"""Where NVRTC and CUDA's headers are on this machine, and which versions. Compiles nothing.

Both come as wheels (`nvidia-cuda-nvrtc`, `nvidia-cuda-runtime`), so that no CUDA toolkit has to be installed.
"""

import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from pagedchat.errors import KernelError
from pagedchat.jit.packages import packages_missing

_NEEDED_HEADER = "cuda_fp16.h"
_VERSION = re.compile(r"^#define\s+CUDART_VERSION\s+(\d+)", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Toolchain:
    """The compiler and the headers, with what tells one release of them from another."""

    nvrtc_version: str
    """As NVRTC says it: `"13.0"`."""
    nvrtc_path: Path
    nvrtc_bytes: int
    """Size of the library: patch releases share a version, yet may generate other code."""
    headers: Path
    """The folder with `cuda_fp16.h`."""
    headers_version: str
    """Of CUDA: `"13.0"`."""


def find_toolchain() -> Toolchain:
    """Look for NVRTC and the headers.

    Raises:
        KernelError: one of them, or CUDA's Python packages, are not installed.
    """
    path, version = _find_nvrtc()
    headers = _find_headers()
    return Toolchain(version, path, path.stat().st_size, headers, _headers_version(headers))


def _find_nvrtc() -> tuple[Path, str]:
    try:
        from cuda.bindings import nvrtc  # noqa: PLC0415 - a macOS has none
        from cuda.pathfinder import DynamicLibNotFoundError, load_nvidia_dynamic_lib  # noqa: PLC0415
    except ImportError:
        raise packages_missing() from None
    try:
        path = load_nvidia_dynamic_lib("nvrtc").abs_path
    except DynamicLibNotFoundError:
        raise KernelError(
            "NVRTC, the compiler of the CUDA kernels, was not found.",
            'Install it: pip install "nvidia-cuda-nvrtc>=13.0"',
        ) from None
    _, major, minor = nvrtc.nvrtcVersion()
    return Path(path), f"{major}.{minor}"


def _find_headers() -> Path:
    for folder in _header_folders():
        if (folder / _NEEDED_HEADER).is_file():
            return folder
    raise KernelError(
        f"CUDA's headers ({_NEEDED_HEADER}) were not found.",
        'Install them: pip install "nvidia-cuda-runtime>=13.0", or set CUDA_HOME to a CUDA toolkit.',
    )


def _header_folders() -> Iterator[Path]:
    """Where the headers may be: the wheel or an installed toolkit as CUDA's own finder knows them, CUDA_HOME."""
    from cuda.pathfinder import find_nvidia_header_directory  # noqa: PLC0415

    found = find_nvidia_header_directory("cudart")
    if found:
        yield Path(found)
    for variable in ("CUDA_HOME", "CUDA_PATH"):
        if root := os.environ.get(variable):
            yield Path(root, "include")


def _headers_version(folder: Path) -> str:
    try:
        match = _VERSION.search((folder / "cuda_runtime_api.h").read_text(encoding="utf-8", errors="replace"))
    except OSError:
        match = None
    if match is None:
        return "unknown"
    number = int(match[1])
    return f"{number // 1000}.{number % 1000 // 10}"
