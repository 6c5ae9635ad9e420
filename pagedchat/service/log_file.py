"""The files that engine processes write their standard output and error to. Knows no process."""

import os
from pathlib import Path

KEPT = 10
"""Logs of earlier runs that are kept."""
TAIL_BYTES = 4096


class LogFile:
    """One UI process's log, shared by the engine processes that it starts one after another.

    Args:
        folder: where logs lie; by the platform's custom (`~/.local/state/pagedchat/log` on Linux) by default.
    """

    def __init__(self, folder: Path | None = None) -> None:
        self.path = (folder or _default_folder()) / f"engine-{os.getpid()}.log"
        self._start = 0

    def open(self) -> int:
        """A file descriptor that appends, for a process about to start; `tail` begins here.

        Raises:
            OSError: the folder cannot be written to.
        """
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self._remove_old()
        descriptor = os.open(self.path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        self._start = os.fstat(descriptor).st_size
        return descriptor

    def tail(self, num_lines: int = 20) -> str:
        """The last lines that were written since `open`."""
        try:
            with self.path.open("rb") as file:
                size = file.seek(0, os.SEEK_END)
                file.seek(max(self._start, size - TAIL_BYTES))
                text = file.read().decode(errors="replace")
        except OSError:
            return ""
        return "\n".join(text.splitlines()[-num_lines:])

    def _remove_old(self) -> None:
        logs = sorted(self.path.parent.glob("engine-*.log"), key=_modified)
        for log in logs[:-KEPT]:
            if log != self.path:
                log.unlink(missing_ok=True)


def _default_folder() -> Path:
    from platformdirs import user_log_path  # noqa: PLC0415 - costs more than the rest of the client

    return user_log_path("pagedchat", appauthor=False)


def _modified(path: Path) -> float:
    try:
        return path.stat().st_mtime
    except OSError:  # removed by another run just now
        return 0.0
