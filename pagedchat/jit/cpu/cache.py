"""Compiled CPU kernels on disk, found again by their IR, the compiler and the processor. As careful as the cache of
cubins (`jit.cache`), whose folder it shares: an entry that cannot be trusted is as good as none.
"""

import hashlib
import json
import logging
import os
from contextlib import suppress
from functools import cached_property
from pathlib import Path

from pagedchat.jit import own_folder
from pagedchat.jit.cache import CPU_SUFFIX, default_folder
from pagedchat.jit.cpu.target import CpuTarget
from pagedchat.private_files import make_folder

_MAGIC = b"pagedchat cpu kernel 1\n"
_DIGEST_BYTES = 32
_log = logging.getLogger(__name__)


def cache_key(text: str, target: CpuTarget) -> str:
    """SHA-256 in hex of everything that the object file depends on."""
    parts = [text, target.triple, target.name, target.feature_text, target.llvm]
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()


class ObjectCache:
    """The folder. Nothing here raises: where a file cannot be read or written, kernels are compiled anew."""

    def __init__(self, folder: Path | None = None) -> None:
        self._folder = folder

    @cached_property
    def folder(self) -> Path:
        """Where the entries lie; the environment is asked on first use."""
        return self._folder or default_folder()

    def get(self, key: str) -> bytes | None:
        """The entry of `key`; None if there is none, a damaged one, which is removed, or another user's."""
        name = key + CPU_SUFFIX
        try:
            with own_folder.opened(self.folder) as folder:
                content = own_folder.read(folder, name)
                start = len(_MAGIC) + _DIGEST_BYTES
                body = content[start:]
                if content[:start] == _MAGIC + _digest(key, body):
                    return body
                _log.warning("Cache entry %s was damaged; the kernels are compiled anew.", self.folder / name)
                with suppress(OSError):
                    os.unlink(name, dir_fd=folder)
        except own_folder.NotOursError as error:
            path = self.folder / error.filename
            _log.warning("%s is not used, since %s; kernels are compiled anew.", path, error.reason)
        except OSError:
            pass
        return None

    def put(self, key: str, body: bytes) -> None:
        """Keep an object file under `key`."""
        try:
            make_folder(self.folder)
            with own_folder.opened(self.folder) as folder:
                own_folder.write(folder, key + CPU_SUFFIX, _MAGIC + _digest(key, body) + body)
        except OSError as error:
            _log.warning("Compiled kernels cannot be kept in %s: %s", self.folder, error.strerror or error)


def _digest(key: str, body: bytes) -> bytes:
    return hashlib.sha256(key.encode() + b"\n" + body).digest()
