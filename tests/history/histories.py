"""What tests of the history begin with: an open one, and chats to be kept."""

import sqlite3
from pathlib import Path

from pagedchat.chat.identity import new_id
from pagedchat.chat.session import ChatSession
from pagedchat.history.opened import OpenHistory
from pagedchat.history.place import FILE_NAME, lock_folder
from pagedchat.history.presence import Presence
from pagedchat.history.records import ChatRecord
from pagedchat.history.sessions import record_of


def open_history(folder: Path, *, read_only: bool = False) -> OpenHistory:
    """As a program of its own would."""
    path = folder / FILE_NAME
    return OpenHistory(path, Presence(lock_folder(path), new_id()), read_only=read_only)


def close_history(history: OpenHistory) -> None:
    """As a program that ends."""
    history.database.close()
    history.presence.leave()


def said(*texts: str, name: str = "tale", **fields) -> ChatSession:
    """A chat in which prompts and replies took turns."""
    session = ChatSession(1, name=name, **fields)
    for number, text in enumerate(texts):
        if number % 2 == 0:
            session.ask(text, number + 1)
        else:
            session.append(text, 1)
            session.finish("stop")
    return session


def record(session: ChatSession, draft: str = "", model: str = "toy") -> ChatRecord:
    return record_of(session, draft, model)


def is_sound(path: Path) -> bool:
    """SQLite's own check of the whole file, and of the index of texts."""
    connection = sqlite3.connect(path)
    connection.execute("INSERT INTO texts (texts, rank) VALUES ('integrity-check', 1)")
    found = connection.execute("PRAGMA integrity_check").fetchall()
    found += connection.execute("PRAGMA foreign_key_check").fetchall()
    connection.close()
    return found == [("ok",)]
