"""Cubins on disk, found again by what they were made from. An entry that cannot be trusted is as good as none.

An entry is a magic line, a SHA-256, a line of JSON (resource usage, compile time) and the cubin; the digest is that
of the key and of all that comes after it, so that an entry under another's name is none. It comes into being under
another name and is moved into place, so a reader sees all of it or nothing, and of two writers of the same entry
either may win. What another user may have written is not read, see `own_folder`.
"""

import hashlib
import json
import logging
import os
from contextlib import suppress
from functools import cached_property
from pathlib import Path

import msgspec
import platformdirs

from pagedchat.jit import own_folder
from pagedchat.jit.architecture import compiler_target
from pagedchat.jit.compiler import OPTIONS, Cubin
from pagedchat.jit.resource_usage import ResourceUsage
from pagedchat.jit.source import KernelSource
from pagedchat.jit.toolchain import Toolchain
from pagedchat.jit.variant import Variant
from pagedchat.private_files import make_folder

_MAGIC = b"pagedchat kernel 2\n"
_DIGEST_BYTES = 32
_SUFFIX = ".cubin"
CPU_SUFFIX = ".o"
"""Of the entries of `jit.cpu.cache`, in the same folder."""
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


class _Facts(msgspec.Struct):
    """What is known of a cubin beside its code."""

    usage: tuple[ResourceUsage, ...]
    seconds: float
    warnings: str


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
        """The entry of `key`; None if there is none, a damaged one, which is removed, or another user's."""
        name = _file_name(key)
        try:
            with own_folder.opened(self.folder) as folder:
                cubin = _decode(key, own_folder.read(folder, name))
                if cubin is None:
                    _log.warning("Cache entry %s was damaged; the kernel is compiled anew.", self.folder / name)
                    with suppress(OSError):
                        os.unlink(name, dir_fd=folder)
                return cubin
        except own_folder.NotOursError as error:
            path = self.folder / error.filename
            self._warn("%s is not used, since %s; kernels are compiled anew.", path, error.reason)
        except OSError:
            pass
        return None

    def put(self, key: str, cubin: Cubin) -> None:
        """Keep `cubin` under `key`."""
        try:
            make_folder(self.folder)
            with own_folder.opened(self.folder) as folder:
                own_folder.write(folder, _file_name(key), _encode(key, cubin))
        except OSError as error:
            self._warn("Compiled kernels cannot be kept in %s: %s", self.folder, error.strerror or error)

    @property
    def objection(self) -> str:
        """Why the folder is not used, to go after "since"; empty where it is, or would be."""
        try:
            with own_folder.opened(self.folder):
                return ""
        except own_folder.NotOursError as error:
            return error.reason
        except OSError:
            return ""

    def size(self) -> tuple[int, int]:
        """Number of entries and their bytes, those of CPU kernels among them."""
        sizes = []
        for path in (path for suffix in (_SUFFIX, CPU_SUFFIX) for path in self.folder.glob(f"*{suffix}")):
            with suppress(OSError):  # another process may have removed it
                sizes.append(path.stat().st_size)
        return len(sizes), sum(sizes)

    def _warn(self, message: str, *values: object) -> None:
        if not self._warned:
            _log.warning(message, *values)
        self._warned = True


def _file_name(key: str) -> str:
    return f"{key}{_SUFFIX}"


def _encode(key: str, cubin: Cubin) -> bytes:
    facts = _Facts(usage=cubin.usage, seconds=cubin.seconds, warnings=cubin.warnings)
    body = msgspec.json.encode(facts) + b"\n" + cubin.code
    return _MAGIC + _digest(key, body) + body


def _decode(key: str, content: bytes) -> Cubin | None:
    start = len(_MAGIC) + _DIGEST_BYTES
    body = content[start:]
    if content[:start] != _MAGIC + _digest(key, body):
        return None
    line, _, code = body.partition(b"\n")
    try:
        facts = msgspec.json.decode(line, type=_Facts)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None
    return Cubin(code, facts.usage, facts.seconds, facts.warnings)


def _digest(key: str, body: bytes) -> bytes:
    return hashlib.sha256(key.encode() + b"\n" + body).digest()
