"""Cubins on disk, found again by what they were made from. An entry that cannot be trusted is as good as none.

An entry is a magic line, the SHA-256 of the rest, a line of JSON (resource usage, compile time) and the cubin. It
comes into being under another name and is moved into place, so a reader sees all of it or nothing, and of two
writers of the same entry either may win.
"""

import hashlib
import json
import logging
import os
import tempfile
from contextlib import suppress
from dataclasses import asdict
from functools import cached_property
from pathlib import Path

import platformdirs

from pagedchat.jit.architecture import compiler_target
from pagedchat.jit.compiler import OPTIONS, Cubin
from pagedchat.jit.resource_usage import ResourceUsage
from pagedchat.jit.source import KernelSource
from pagedchat.jit.toolchain import Toolchain
from pagedchat.jit.variant import Variant

_MAGIC = b"pagedchat kernel 1\n"
_DIGEST_BYTES = 32
_SUFFIX = ".cubin"
_log = logging.getLogger(__name__)


def default_folder() -> Path:
    """`$PAGEDCHAT_CACHE_DIR/kernels`, or by the platform's custom (`~/.cache/pagedchat/kernels` on Linux)."""
    root = os.environ.get("PAGEDCHAT_CACHE_DIR") or platformdirs.user_cache_dir("pagedchat", appauthor=False)
    return Path(root) / "kernels"


def cache_key(source: KernelSource, variant: Variant, architecture: str, toolchain: Toolchain) -> str:
    """SHA-256 in hex of everything that the cubin depends on.

    The path counts too: it stands in the cubin's line table, where a profiler looks for the source.
    """
    parts = {
        "path": str(source.path),
        "source": source.text,
        "headers": source.headers,
        "defines": variant.defines,
        "options": OPTIONS,
        "target": compiler_target(architecture),
        "nvrtc": [toolchain.nvrtc_version, toolchain.nvrtc_bytes],
        "cuda_headers": toolchain.headers_version,
    }
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()


class KernelCache:
    """The cache folder. Nothing here raises: where a file cannot be read or written, kernels are compiled anew."""

    def __init__(self, folder: Path | None = None) -> None:
        self._folder = folder
        self._warned = False

    @cached_property
    def folder(self) -> Path:
        """Where the entries lie; the environment is asked on first use."""
        return self._folder or default_folder()

    def get(self, key: str) -> Cubin | None:
        """The entry of `key`; None if there is none, or one that is damaged, which is removed."""
        path = self._path(key)
        try:
            content = path.read_bytes()
        except OSError:
            return None
        cubin = _decode(content)
        if cubin is None:
            _log.warning("Cache entry %s was damaged; the kernel is compiled anew.", path)
            with suppress(OSError):
                path.unlink()
        return cubin

    def put(self, key: str, cubin: Cubin) -> None:
        """Keep `cubin` under `key`."""
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            _write_atomically(self._path(key), _encode(cubin))
        except OSError as error:
            if not self._warned:
                _log.warning("Compiled kernels cannot be kept in %s: %s", self.folder, error.strerror or error)
            self._warned = True

    def size(self) -> tuple[int, int]:
        """Number of entries and their bytes."""
        sizes = []
        for path in self.folder.glob(f"*{_SUFFIX}"):
            with suppress(OSError):  # another process may have removed it
                sizes.append(path.stat().st_size)
        return len(sizes), sum(sizes)

    def _path(self, key: str) -> Path:
        return self.folder / f"{key}{_SUFFIX}"


def _encode(cubin: Cubin) -> bytes:
    facts = {
        "usage": [asdict(usage) for usage in cubin.usage],
        "seconds": cubin.seconds,
        "warnings": cubin.warnings,
    }
    body = json.dumps(facts).encode() + b"\n" + cubin.code
    return _MAGIC + hashlib.sha256(body).digest() + body


def _decode(content: bytes) -> Cubin | None:
    start = len(_MAGIC) + _DIGEST_BYTES
    body = content[start:]
    if content[:start] != _MAGIC + hashlib.sha256(body).digest():
        return None
    line, _, code = body.partition(b"\n")
    facts = json.loads(line)
    usage = tuple(ResourceUsage(**fields) for fields in facts["usage"])
    return Cubin(code, usage, facts["seconds"], facts["warnings"])


def _write_atomically(path: Path, content: bytes) -> None:
    descriptor, temporary = tempfile.mkstemp(dir=path.parent, prefix=".new-")
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(content)
        os.replace(temporary, path)
    except OSError:
        with suppress(OSError):
            os.unlink(temporary)
        raise
