"""The files that engine processes write their standard output and error to. Knows no process.

A log lies in the platform's place for logs; where that cannot be written to, in a folder for temporary files; and
where that is no use either there is none. Nobody's chats fail for want of a log.
"""

import fcntl
import os
import tempfile
import traceback
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from pagedchat.private_files import is_private_folder, make_folder, open_to_append

KEPT = 10
"""Logs of earlier runs that are kept."""
TAIL_BYTES = 4096
_NOWHERE = Path(os.devnull)


class LogFile:
    """One UI process's log, shared by the engine processes that it starts one after another.

    Whoever has the file open, this process or one that it started, holds a lock on it: another program that makes
    room for its own log leaves such a file alone.

    Args:
        folder: where logs lie; by the platform's custom (`~/.local/state/pagedchat/log` on Linux) by default.
        which: of several engines at a time; a part of the file's name.
    """

    def __init__(self, folder: Path | None = None, which: str = "") -> None:
        self._descriptor = -1
        self._folder = folder or _default_folder()
        self._name = f"engine-{os.getpid()}{which}.log"
        self._path = self._folder / self._name
        self._start = 0
        self.complaint = ""
        """Why the log is not where it belongs, in a sentence; empty where it is."""

    @property
    def path(self) -> Path | None:
        """Where the log is, or will be; None where there is none."""
        return None if self._path == _NOWHERE else self._path

    def open(self) -> int:
        """A file descriptor that appends, for a process about to start, to be closed by the caller; `tail` begins
        here.

        Raises:
            OSError: there are no descriptors left.
        """
        if self._descriptor < 0:
            self._descriptor = self._open_anywhere()
        self._start = os.fstat(self._descriptor).st_size
        return os.dup(self._descriptor)

    def add_traceback(self, error: BaseException) -> None:
        """Append how an error of this process came about."""
        if self._descriptor >= 0:
            with suppress(OSError):  # the disk is full
                os.write(self._descriptor, "".join(traceback.format_exception(error)).encode(errors="replace"))

    def tail(self, num_lines: int = 20) -> str:
        """The last lines that were written since `open`."""
        try:
            with self._path.open("rb") as file:
                size = file.seek(0, os.SEEK_END)
                file.seek(max(self._start, size - TAIL_BYTES))
                text = file.read(TAIL_BYTES).decode(errors="replace")
        except OSError:
            return ""
        return "\n".join(text.splitlines()[-num_lines:])

    def close(self) -> None:
        """Let go of the file: from now on it may be removed; twice does no harm."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1

    def __del__(self) -> None:
        self.close()

    # --- where it lies ------------------------------------------------------------------------------

    def _open_anywhere(self) -> int:
        try:
            return self._open_in(self._folder, lambda _: True)
        except OSError as error:
            reason = f"{self._folder} cannot be written to ({(error.strerror or str(error)).lower()})"
        try:
            elsewhere = Path(tempfile.gettempdir()) / f"pagedchat-log-{os.getuid()}"
            descriptor = self._open_in(elsewhere, is_private_folder)
        except OSError:
            self._path, self.complaint = _NOWHERE, f"The engine's log is not kept: {reason}."
            return os.open(_NOWHERE, os.O_WRONLY | os.O_CLOEXEC)
        self.complaint = f"The engine's log is {self._path}: {reason}."
        return descriptor

    def _open_in(self, folder: Path, is_fit: Callable[[Path], bool]) -> int:
        make_folder(folder)
        if not is_fit(folder):
            raise PermissionError(f"{folder} is open to others")
        _remove_old(folder, self._name)
        descriptor = _open_locked(folder / self._name)
        self._path = folder / self._name
        return descriptor


def _open_locked(path: Path) -> int:
    """Opened to append, with a lock that lasts as long as anybody has it open."""
    descriptor = open_to_append(path)
    _lock(descriptor, fcntl.LOCK_SH)
    if path.exists():
        return descriptor
    os.close(descriptor)  # removed between opening and locking
    return _open_locked(path)


def _remove_old(folder: Path, own_name: str) -> None:
    """All but the newest that nobody writes to any more."""
    others = [log for log in folder.glob("engine-*.log") if log.name != own_name]
    for log in sorted(others, key=_modified)[:-KEPT]:
        _remove_unless_used(log)


def _remove_unless_used(log: Path) -> None:
    try:
        descriptor = os.open(log, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
    except OSError:  # removed by another run just now, or nothing that we made
        return
    try:
        if _lock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB):
            log.unlink(missing_ok=True)
    finally:
        os.close(descriptor)


def _lock(descriptor: int, how: int) -> bool:
    """False where somebody else holds it, or files have no locks there."""
    try:
        fcntl.flock(descriptor, how)
    except OSError:
        return False
    return True


def _default_folder() -> Path:
    from platformdirs import user_log_path  # noqa: PLC0415 - costs more than the rest of the client

    return user_log_path("pagedchat", appauthor=False)


def _modified(path: Path) -> float:
    try:
        return path.stat().st_mtime
    except OSError:  # removed by another run just now
        return 0.0
