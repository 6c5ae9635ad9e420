"""Where running programs leave their sockets, and which of them are still there. Knows no socket's language.

A socket is `PID.sock` in a folder that only this user can enter. The system's own place for such things comes
first; where that is missing, or its path is longer than a socket's may be (104 bytes on macOS), one in the
folder for temporary files.
"""

import os
import tempfile
import warnings
from pathlib import Path

from platformdirs import user_runtime_path

from pagedchat.private_files import is_private_folder, make_folder

APP = "pagedchat"
MAX_PATH = 100
"""Bytes in a socket's path; the least of all systems, less a few."""
_SUFFIX = ".sock"
_LONGEST_NAME = f"/{2**22}{_SUFFIX}"


def socket_folder() -> Path:
    """The folder for our own socket, made if need be.

    Raises:
        OSError: no place is fit for one.
    """
    for folder in _candidates():
        if _make(folder):
            return folder
    raise OSError("no folder for a socket is private to this user")


def socket_path(folder: Path, pid: int) -> Path:
    """The socket of the program with this process id."""
    return folder / f"{pid}{_SUFFIX}"


def running() -> dict[int, Path]:
    """Process id -> socket of every program of this user that runs; what dead ones left behind is removed."""
    found: dict[int, Path] = {}
    for folder in filter(is_private_folder, _candidates()):
        for path in sorted(folder.glob(f"*{_SUFFIX}")):
            if not path.stem.isdecimal():
                continue
            if _is_alive(int(path.stem)):
                found.setdefault(int(path.stem), path)
            else:
                path.unlink(missing_ok=True)
    return found


def _is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)  # signal 0 only asks
    except PermissionError:
        return True
    except (ProcessLookupError, OverflowError):
        return False
    return True


def _candidates() -> list[Path]:
    """Every place where a socket may be, the best first."""
    own_name = f"{APP}-{os.getuid()}"
    folders = [*_system_folder(), Path(tempfile.gettempdir()) / own_name, Path("/tmp") / own_name]  # noqa: S108
    fits = [folder for folder in folders if len(os.fsencode(folder)) + len(_LONGEST_NAME) <= MAX_PATH]
    return list(dict.fromkeys(fits))


def _system_folder() -> list[Path]:
    """A system that has no such place says so by a warning, which is no business of the user's."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            return [user_runtime_path(APP, appauthor=False)]
        except OSError:
            return []


def _make(folder: Path) -> bool:
    """Whether the folder is there in the end, for us alone."""
    try:
        make_folder(folder)
    except OSError:
        return False
    return is_private_folder(folder)
