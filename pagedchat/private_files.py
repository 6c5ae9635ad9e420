"""Files and folders that hold what people wrote: nobody but this user may read them, whatever the umask says.

Folders that are there already are left as they are; whoever opened one to others has decided so.
"""

import os
import stat
from pathlib import Path

FILE_MODE = 0o600
FOLDER_MODE = 0o700


def make_folder(path: Path) -> None:
    """Make a folder and all that it takes to get there; only what is made here is closed to others.

    Raises:
        OSError: it cannot be made, or there is something else of that name.
    """
    try:
        path.mkdir(mode=FOLDER_MODE)
    except FileNotFoundError:
        make_folder(path.parent)
        path.mkdir(mode=FOLDER_MODE, exist_ok=True)
    except FileExistsError:
        if not path.is_dir():
            raise


def is_private_folder(path: Path) -> bool:
    """A folder of ours, no link to one, that nobody else can enter: its parent may be open to everybody."""
    try:
        status = path.lstat()
    except OSError:
        return False
    return stat.S_ISDIR(status.st_mode) and status.st_uid == os.getuid() and not status.st_mode & 0o077


def open_to_append(path: Path) -> int:
    """A descriptor that appends to a file of the program's own; one that others could read is closed to them.

    Raises:
        OSError: it cannot be opened.
    """
    return _open_for_us(path, os.O_APPEND)


def close_to_others(path: Path) -> None:
    """A file of ours that others can read, as an older program may have left it, is closed to them from now on.

    Raises:
        OSError: it is not there, or cannot be changed.
    """
    status = path.lstat()
    if stat.S_ISREG(status.st_mode) and status.st_mode & 0o077 and status.st_uid == os.getuid():
        path.chmod(FILE_MODE)


def write_file(path: Path, data: bytes) -> None:
    """A file with nothing else in it.

    Raises:
        OSError: it cannot be written.
    """
    with os.fdopen(_open_for_us(path, os.O_TRUNC), "wb") as file:
        file.write(data)


def _open_for_us(path: Path, how: int) -> int:
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC | how, FILE_MODE)
    status = os.fstat(descriptor)
    if stat.S_ISREG(status.st_mode) and status.st_mode & 0o077 and status.st_uid == os.getuid():
        os.fchmod(descriptor, FILE_MODE)
    return descriptor
