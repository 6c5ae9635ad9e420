"""A folder whose files are run as code, and who may have written them. Knows nothing of what they contain.

What another user can write to, another user can plant code in. So the folder and each file must belong to this
user, or to the superuser, and nobody else may write to them. All is asked of what is open, never of a path, which
may have become another's meanwhile.
"""

import os
import secrets
import stat
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

_OTHERS_WRITE = stat.S_IWGRP | stat.S_IWOTH
_NEW, _LEFT_AFTER = ".new-", 3600.0
"""What files are called while they are written, and the age in seconds from which nobody is at it any more."""


class NotOursError(OSError):
    """The folder or the file may be another user's doing; `reason` goes after "since"."""

    def __init__(self, reason: str, path: str) -> None:
        super().__init__(None, reason, path)
        self.reason = reason


@contextmanager
def opened(folder: Path) -> Iterator[int]:
    """A descriptor of the folder, for this module's other functions.

    A folder of ours that others may write to, as some systems make them by default, is closed to them first.

    Raises:
        NotOursError: it is not to be trusted.
        OSError: it is not there, or cannot be entered.
    """
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        _check_folder(descriptor, folder)
        yield descriptor
    finally:
        os.close(descriptor)


def read(folder: int, name: str) -> bytes:
    """A file's contents.

    Raises:
        NotOursError: it is not to be trusted.
        OSError: it is not there, or cannot be read.
    """
    # A link leads elsewhere; and whoever opens a pipe waits for its other end.
    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    with os.fdopen(os.open(name, flags, dir_fd=folder), "rb") as file:
        status = os.fstat(file.fileno())
        if not stat.S_ISREG(status.st_mode):
            raise NotOursError("it is no file", name)
        reason = _why_not(status)
        if reason:
            raise NotOursError(reason, name)
        return file.read()


def write(folder: int, name: str, content: bytes) -> None:
    """A file for this user alone. It comes into being under another name and is moved into place.

    Raises:
        OSError: it cannot be written.
    """
    _remove_leftovers(folder)
    temporary = f"{_NEW}{secrets.token_hex(8)}"
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    descriptor = os.open(temporary, flags, 0o600, dir_fd=folder)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(content)
        os.replace(temporary, name, src_dir_fd=folder, dst_dir_fd=folder)
    except OSError:
        with suppress(OSError):
            os.unlink(temporary, dir_fd=folder)
        raise


def _remove_leftovers(folder: int) -> None:
    """Files that were never finished, because their writers were killed."""
    for name in os.listdir(folder):
        if name.startswith(_NEW):
            with suppress(OSError):  # another process may have removed it, or finished it just now
                if os.stat(name, dir_fd=folder, follow_symlinks=False).st_mtime < time.time() - _LEFT_AFTER:
                    os.unlink(name, dir_fd=folder)


def trusted_owners() -> set[int]:
    """User ids whose files may be run."""
    return {os.geteuid(), 0}


def _check_folder(descriptor: int, folder: Path) -> None:
    status = os.fstat(descriptor)
    meant_for_all = status.st_mode & stat.S_ISVTX
    if status.st_uid == os.geteuid() and status.st_mode & _OTHERS_WRITE and not meant_for_all:
        os.fchmod(descriptor, stat.S_IMODE(status.st_mode) & ~_OTHERS_WRITE)
        status = os.fstat(descriptor)
    reason = _why_not(status)
    if reason:
        raise NotOursError(reason, str(folder))


def _why_not(status: os.stat_result) -> str:
    """What is wrong with an owner and a mode; empty if nothing."""
    if status.st_uid not in trusted_owners():
        return f"it belongs to another user (uid {status.st_uid})"
    return "other users may write to it" if status.st_mode & _OTHERS_WRITE else ""
