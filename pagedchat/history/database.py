"""The history's file: opened for its owner alone, kept aside where it is damaged, what is wrong with it in words.

Knows no chats. Nothing here is fatal: what cannot be kept is said, and the program goes on.
"""

import os
import sqlite3
from contextlib import suppress
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Literal

from pagedchat.chat.sanitize import one_line
from pagedchat.errors import PagedChatError, first_line
from pagedchat.history.place import related_files
from pagedchat.history.schema import VERSION, NewerSchemaError, add_full_text, migrate, version_of
from pagedchat.private_files import make_folder, open_to_append

BUSY_SECONDS = 2.0
"""So long is waited for another program that writes."""

Trouble = Literal["locked", "full", "damaged", "read-only", "newer", "broken"]
_MAY_PASS: dict[Trouble, tuple[str, str]] = {
    "locked": ("The history is locked by another program", "when that lets it go"),
    "full": ("The disk is full", "in the history when there is room again"),
}
"""What there is to wait for: what is wrong, and when what is new is kept."""


class HistoryError(PagedChatError):
    """The history cannot be read or written now."""

    def __init__(self, trouble: Trouble, message: str, hint: str = "") -> None:
        super().__init__(message, hint)
        self.trouble = trouble

    @property
    def may_pass(self) -> bool:
        """Whether it is worth while to wait."""
        return self.trouble in _MAY_PASS

    @property
    def at_the_end(self) -> str:
        """What is to be said of it once nobody waits any more."""
        if not self.may_pass:
            return str(self)
        return f"{_MAY_PASS[self.trouble][0]}: not all of this run is in the history."

    def __reduce__(self) -> tuple[type["HistoryError"], tuple[str, ...]]:
        return type(self), (self.trouble, self.message, self.hint)


@dataclass(frozen=True, slots=True)
class Database:
    """An open file."""

    path: Path
    connection: sqlite3.Connection
    has_full_text: bool
    read_only: bool
    inode: tuple[int, int]
    """Of the file that was opened: another of the same name may lie there later."""

    def is_in_place(self) -> bool:
        """Whether the file still lies where it was opened."""
        return _inode(self.path) == self.inode

    def close(self) -> None:
        """Let go of it."""
        with suppress(sqlite3.Error):
            self.connection.close()


def open_database(path: Path, *, read_only: bool = False) -> Database:
    """Open the history, or begin a new one.

    Raises:
        HistoryError: it cannot be opened, or is of a later version.
    """
    try:
        if read_only:
            return _open_to_read(path)
        make_folder(path.parent)
        os.close(open_to_append(path))  # made by us, for us alone; SQLite gives its own files the same mode
        return _opened(path, path.absolute().as_uri(), read_only=False)
    except NewerSchemaError as error:
        raise _newer(error.version) from None
    except (sqlite3.Error, OSError) as error:
        raise explained(error, path) from error


def _opened(path: Path, uri: str, *, read_only: bool) -> Database:
    inode = _inode(path)
    connection = sqlite3.connect(uri, uri=True, timeout=BUSY_SECONDS, isolation_level=None, check_same_thread=False)
    connection.text_factory = _text
    try:
        version = version_of(connection)
        if version > VERSION:
            raise NewerSchemaError(version)
        if version < 0:
            raise HistoryError("damaged", f"The history in {one_line(str(path))} is of no version.")
        if not read_only:
            connection.execute("PRAGMA journal_mode = WAL")
            migrate(connection)
            connection.execute("PRAGMA foreign_keys = ON")
        return Database(path, connection, add_full_text(connection), read_only, inode)
    except BaseException:
        connection.close()
        raise


def _text(data: bytes) -> str:
    """A damaged text is read as far as it can be."""
    return data.decode("utf-8", "replace")


def _open_to_read(path: Path) -> Database:
    """Where nothing can be written SQLite reads its log only if that has its index, so without it if need be."""
    for options in ("mode=ro", "mode=ro&immutable=1"):
        try:
            database = _opened(path, f"{path.absolute().as_uri()}?{options}", read_only=True)
            if version_of(database.connection) == VERSION:
                return database
            database.close()
        except sqlite3.OperationalError:
            continue
    raise HistoryError("read-only", f"There is no history in {one_line(str(path.parent))} that can be read.")


def keep_aside(path: Path) -> Path:
    """Give a damaged file, with those beside it, another name; returns that.

    Raises:
        HistoryError: it cannot be renamed.
    """
    aside = next(
        name for number in count(1) if not (name := path.with_name(f"{path.name}.damaged-{number}")).exists()
    )
    try:
        for file in related_files(path):
            if file.exists():
                file.rename(aside.with_name(file.name.replace(path.name, aside.name, 1)))
    except OSError as error:
        raise explained(error, path) from error
    return aside


def explained(error: Exception, path: Path) -> HistoryError:
    """What went wrong, in a sentence."""
    if isinstance(error, HistoryError):
        return error
    trouble = _trouble(error)
    where = one_line(str(path))
    match trouble:
        case "locked" | "full":
            why, when = _MAY_PASS[trouble]
            message = f"{why}: what is new is kept {when}."
        case "damaged":
            message = f"The history in {where} is damaged."
        case "read-only":
            reason = error.strerror if isinstance(error, OSError) else ""
            why = (reason or "it is read-only").lower()
            message = f"The history in {where} cannot be written to ({why}): what is new is not kept."
        case _:
            message = f"The history in {where} fails ({one_line(first_line(error))}): what is new is not kept."
    return HistoryError(trouble, message)


def _newer(version: int) -> HistoryError:
    return HistoryError(
        "newer",
        f"The history was written by a newer pagedchat (version {version}; this one knows {VERSION}): "
        "nothing of this run is kept.",
    )


_CODES: dict[int, Trouble] = {
    sqlite3.SQLITE_BUSY: "locked",
    sqlite3.SQLITE_LOCKED: "locked",
    sqlite3.SQLITE_FULL: "full",
    sqlite3.SQLITE_CORRUPT: "damaged",
    sqlite3.SQLITE_NOTADB: "damaged",
    sqlite3.SQLITE_READONLY: "read-only",
    sqlite3.SQLITE_CANTOPEN: "read-only",
    sqlite3.SQLITE_PERM: "read-only",
}


def _trouble(error: Exception) -> Trouble:
    if isinstance(error, OSError):
        return "read-only"
    code = getattr(error, "sqlite_errorcode", None)
    if code is None:
        return "broken"
    if code == sqlite3.SQLITE_IOERR_WRITE:  # as a limit on the size of files has it
        return "full"
    if code == sqlite3.SQLITE_ERROR and "no such table" in str(error):
        return "damaged"  # a database of the right version without its tables
    return _CODES.get(code & 0xFF, "broken")


def _inode(path: Path) -> tuple[int, int]:
    try:
        status = path.stat()
    except OSError:
        return (0, 0)
    return status.st_dev, status.st_ino
