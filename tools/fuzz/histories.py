"""Histories: whatever is in the file, past chats are listed, searched and reopened, or refused in words; and what
is written afterwards is there, if not refused.
"""

import sqlite3
import tempfile
from collections.abc import Callable
from contextlib import closing, suppress
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from hypothesis import strategies as st

from pagedchat.chat.identity import new_id
from pagedchat.chat.session import ChatSession
from pagedchat.errors import PagedChatError
from pagedchat.history.lasting import LastingHistory
from pagedchat.history.opened import OpenHistory
from pagedchat.history.place import FILE_NAME, lock_folder
from pagedchat.history.presence import Presence
from pagedchat.history.records import LayoutRecord, PaneRecord
from pagedchat.history.run import reopen_last
from pagedchat.history.sessions import record_of, session_of
from pagedchat.view.chats.past_chats import past_chat_row
from tools.fuzz.target import Target

COLUMNS = {
    "chats": ("id", "tree", "title", "tip", "num_turns", "opening", "draft", "system", "settings", "model",
              "origin_chat", "origin_label", "origin_entries", "changed", "touched", "deleted"),
    "turns": ("id", "tree", "parent", "chat", "role", "text", "ending", "model", "indexed"),
    "queued": ("chat", "position", "text"),
    "windows": ("owner", "process", "focused", "wanted", "zoomed", "touched"),
    "panes": ("window", "position", "number", "chat"),
}  # fmt: skip
_VALUES = st.sampled_from([
    None, 0, 1, -1, 2**63 - 1, -(2**63), 0.5, float("inf"), "", "x", "open", "user", b"", b"\xff\x00", "\x1b[2J",
    "\u202e", "[]", "{}",
]) | st.integers(0, 9)  # fmt: skip


class Bend(NamedTuple):
    """One value that is not what it was."""

    column: tuple[str, str]
    row: int
    value: Any


_BENDS = st.builds(
    Bend,
    st.sampled_from([(table, column) for table, columns in COLUMNS.items() for column in columns]),
    st.integers(0, 5),
    _VALUES,
)
_STATEMENTS = st.sampled_from([
    "PRAGMA user_version = 0", "PRAGMA user_version = 9", "DROP TABLE turns", "DROP TABLE queued",
    "DELETE FROM turns",
    "DROP TABLE texts", "DELETE FROM texts_data", "DELETE FROM texts_idx", "DROP VIEW complete_turns",
    "UPDATE turns SET parent = id", "UPDATE turns SET text = CAST(x'ff00fe' AS TEXT)", "DROP INDEX turns_parent",
    "ALTER TABLE chats RENAME COLUMN title TO name", "PRAGMA journal_mode = DELETE",
])  # fmt: skip


@cache
def whole() -> bytes:
    """A history of a few chats, forks and a window, in one file."""
    with tempfile.TemporaryDirectory() as name:
        path = Path(name) / FILE_NAME
        history = OpenHistory(path, Presence(lock_folder(path), new_id()))
        first = _chat("Tell me a tale.", "The boat left before dawn.", name="tale")
        fork = first.fork(2, 9)
        fork.ask("And then?", 10)
        fork.append("It came", 1)
        fork.enqueue("Go on.")
        for chat in (first, fork, _chat("海の上", "月")):
            history.store.write(record_of(chat, "a draft", "toy"))
        history.windows.write(LayoutRecord((PaneRecord(1, first.chat_id), PaneRecord(2, fork.chat_id)), 2))
        history.database.connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        history.database.close()
        history.presence.leave()
        return path.read_bytes()


def _chat(prompt: str, reply: str, name: str = "") -> ChatSession:
    chat = ChatSession(1, name=name)
    chat.ask(prompt, 1)
    chat.append(reply, 1)
    chat.finish("stop")
    return chat


def _damaged(edits: list[tuple[int, bytes]], length: float) -> bytes:
    data = bytearray(whole())
    for place, piece in edits:
        start = place % len(data)
        data[start : start + len(piece)] = piece
    return bytes(data[: int(len(data) * length)])


def _check_bytes(example: tuple[list[tuple[int, bytes]], float]) -> None:
    def write(path: Path) -> None:
        path.write_bytes(_damaged(*example))

    _check(write)


def _check_values(example: tuple[list[Bend], list[str]]) -> None:
    bends, statements = example

    def write(path: Path) -> None:
        path.write_bytes(whole())
        with closing(sqlite3.connect(path)) as connection:
            for (table, column), row, value in bends:
                with suppress(sqlite3.Error):  # not every value may be everywhere
                    connection.execute(
                        f"UPDATE {table} SET {column} = ? WHERE rowid = "  # noqa: S608 - names from above
                        f"(SELECT rowid FROM {table} LIMIT 1 OFFSET ?)",
                        (value, row),
                    )
            connection.commit()
            for statement in statements:
                with suppress(sqlite3.Error):
                    connection.execute(statement)
            connection.commit()

    _check(write)


def _check(write: Callable[[Path], None]) -> None:
    with tempfile.TemporaryDirectory() as name:
        path = Path(name) / FILE_NAME
        write(path)
        presence = Presence(lock_folder(path), new_id())
        history = LastingHistory(path, presence, lambda sentence: None, lambda: None)
        try:
            _look(history)
            _go_on(history)
        finally:
            history.close()
            presence.leave()


def _look(history: LastingHistory) -> None:
    for words in ("", "boat", "月", '"*'):
        with suppress(PagedChatError):
            found = history.use(lambda opened, words=words: opened.search.chats(words), writes=False)  # type: ignore[misc]
            for chat in found.chats:
                assert "".join(past_chat_row(chat, 80, open_here=False, now=0.0)).isprintable()
                _reopen(history, chat.chat_id)
    with suppress(PagedChatError):
        history.use(reopen_last, writes=False)
    with suppress(PagedChatError):
        history.use(lambda opened: opened.store.last_deleted(), writes=False)


def _reopen(history: LastingHistory, chat_id: int) -> None:
    with suppress(PagedChatError):
        record = history.use(lambda opened: opened.store.read(chat_id), writes=False)
        if record is not None:
            turns = [entry.turn for entry in session_of(record, 1).entries]
            assert [turn.role for turn in turns] == ["user", "assistant"] * (len(turns) // 2)
            assert all(isinstance(turn.text, str) for turn in turns)


def _go_on(history: LastingHistory) -> None:
    """What is written now is there, or it is said that it cannot be."""
    record = record_of(_chat("one", "two"), "", "toy")
    with suppress(PagedChatError):
        history.use(lambda opened: opened.store.write(record), writes=True)
        assert history.use(lambda opened: opened.store.read(record.chat_id), writes=False) == record


_EDITS = st.lists(st.tuples(st.integers(0, 1 << 20), st.binary(min_size=1, max_size=40)), max_size=8)
TARGETS = (
    Target("histories, bytes", st.tuples(_EDITS, st.just(1.0) | st.floats(0, 1)), _check_bytes),
    Target(
        "histories, values",
        st.tuples(st.lists(_BENDS, max_size=6), st.lists(_STATEMENTS, max_size=2)),
        _check_values,
    ),
)
