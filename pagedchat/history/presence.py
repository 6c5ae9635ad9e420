"""Which programs have the history open: each holds a lock on a file of its own until it ends, however it ends.

Knows no database and no chats. Where files have no locks, nobody is taken to be there.
"""

import fcntl
import os
from contextlib import suppress
from pathlib import Path

from pagedchat.private_files import make_folder, open_to_append

_SUFFIX = ".open"


class Presence:
    """This program's lock, and a look at the others'.

    Args:
        folder: where the locks lie.
        owner: this program's number.
    """

    def __init__(self, folder: Path, owner: int) -> None:
        self._folder = folder
        self.owner = owner
        self._descriptor = -1

    def announce(self) -> None:
        """Be there, until `leave` or the end of the process; twice does no harm.

        Raises:
            OSError: no file can be made there.
        """
        make_folder(self._folder)
        while self._descriptor < 0:
            descriptor = open_to_append(self._path(self.owner))
            with suppress(OSError):
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if self._path(self.owner).exists():
                self._descriptor = descriptor
            else:
                os.close(descriptor)  # swept away by another between opening and locking

    def is_there(self, owner: int) -> bool:
        """Whether another program of this number runs."""
        if owner == self.owner or not isinstance(owner, int):  # a file that somebody else has written
            return False
        return self._path(owner).exists() and not self._remove_if_left(self._path(owner))

    def sweep(self) -> None:
        """Remove the files of programs that are gone."""
        with suppress(OSError):
            for path in self._folder.glob(f"*{_SUFFIX}"):
                if path != self._path(self.owner):
                    self._remove_if_left(path)

    def leave(self) -> None:
        """Be gone."""
        if self._descriptor >= 0:
            with suppress(OSError):
                self._path(self.owner).unlink(missing_ok=True)
            os.close(self._descriptor)
            self._descriptor = -1

    def _path(self, owner: int) -> Path:
        return self._folder / f"{owner:x}{_SUFFIX}"

    def _remove_if_left(self, path: Path) -> bool:
        """True if nobody holds it."""
        try:
            descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
        except OSError:
            return True
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            path.unlink(missing_ok=True)
        except BlockingIOError:
            return False
        except OSError:
            pass
        finally:
            os.close(descriptor)
        return True
