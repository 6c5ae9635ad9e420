"""A history that lasts whatever becomes of its file: damaged, it is kept aside and begun anew; taken away, made
again; read-only, it is read all the same. Knows no threads and no chats.
"""

import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from pagedchat.chat.sanitize import one_line
from pagedchat.errors import PagedChatError
from pagedchat.history.database import HistoryError, explained, keep_aside
from pagedchat.history.opened import OpenHistory
from pagedchat.history.presence import Presence

T = TypeVar("T")


class LastingHistory:
    """Opens the file when it is first used, and again where that is needed.

    Args:
        path: the history's file.
        presence: this program's.
        say: hears in a sentence what became of the file.
        lost: is called where a new file stands in the place of the one that had been written to.
    """

    def __init__(
        self, path: Path, presence: Presence, say: Callable[[str], None], lost: Callable[[], None]
    ) -> None:
        self._path = path
        self._presence = presence
        self._say = say
        self._lost = lost
        self._history: OpenHistory | None = None

    def use(self, work: Callable[[OpenHistory], T], *, writes: bool) -> T:
        """Do something with the history; what only reads may get one that cannot be written to.

        Raises:
            HistoryError: it cannot be done now.
        """
        try:
            return self._explaining(work, writes)
        except HistoryError as error:
            if error.trouble != "damaged":
                raise
        self._begin_anew()
        return self._explaining(work, writes)

    def _explaining(self, work: Callable[[OpenHistory], T], writes: bool) -> T:
        """What is wrong with the file is a `HistoryError`: values of kinds that this program never writes, too."""
        try:
            return self._tried(work, writes)
        except PagedChatError:
            raise
        except (sqlite3.Error, OSError, TypeError, ValueError, OverflowError) as error:
            raise explained(error, self._path) from error

    def close(self) -> None:
        """Let go of the file, until it is used again."""
        if self._history is not None:
            self._history.database.close()
            self._history = None

    def _tried(self, work: Callable[[OpenHistory], T], writes: bool) -> T:
        history = self._opened(writes)
        try:
            return work(history)
        except sqlite3.DatabaseError as error:
            if getattr(error, "sqlite_errorcode", 0) != sqlite3.SQLITE_CORRUPT_VTAB:
                raise
            history.store.rebuild_index()  # which is made of the turns, so nothing is lost with it
            return work(history)

    def _opened(self, writes: bool) -> OpenHistory:
        if self._history is not None and not self._history.database.is_in_place():
            self.close()
            self._say("The history's file was taken away: a new one has the chats of this run.")
            self._lost()
        if self._history is None or (writes and self._history.database.read_only):
            found = self._open(writes)
            self.close()
            self._history = found
        return self._history

    def _open(self, writes: bool) -> OpenHistory:
        try:
            return OpenHistory(self._path, self._presence)
        except HistoryError as error:
            if writes or error.trouble != "read-only":
                raise
        return OpenHistory(self._path, self._presence, read_only=True)

    def _begin_anew(self) -> None:
        """The damaged file gets another name, unless another program has been faster."""
        ours = self._history is None or self._history.database.is_in_place()
        self.close()
        if ours:
            aside = one_line(str(keep_aside(self._path)))
            self._say(f"The history was damaged: it is kept as {aside}, and a new one is begun.")
        self._lost()
