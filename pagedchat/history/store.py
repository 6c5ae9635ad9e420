"""Chats written into the history and read from it, one at a time, each in one transaction.

Knows the tables, and nothing of threads, screens and engines. A turn that is complete never changes, so it is
written once; only the reply that is being written is written again and again.
"""

import sqlite3
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import get_args

from pagedchat.chat.sanitize import one_line
from pagedchat.chat.session import ForkOrigin
from pagedchat.chat.tree import ROOT
from pagedchat.chat.turns import Ending, Entry, Role, Turn
from pagedchat.history.database import Database
from pagedchat.history.records import ChatRecord
from pagedchat.history.values import number_of, optional_text, text_of

OPENING = 200
"""Characters of a chat's first prompt that lists may show."""
_SWEEP_SECONDS = 24 * 3600.0
"""So long a deleted chat can be had back."""
_INDEX_AT_ONCE = 2000
"""Turns that are added to the index in one go."""

_WRITE_TURN = """
INSERT INTO turns (id, tree, parent, chat, role, text, ending, model, made) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)
ON CONFLICT (id) DO UPDATE SET text = excluded.text, ending = excluded.ending WHERE turns.ending = 'open'
"""
_ADD_CHAT = """
INSERT INTO chats (
    id, tree, title, tip, num_turns, opening, draft, system, settings, model,
    origin_chat, origin_label, origin_entries, origin_prompts, made, changed, touched
) VALUES (
    :id, :tree, :title, :tip, :num_turns, :opening, :draft, :system, :settings, :model,
    :origin_chat, :origin_label, :origin_entries, :origin_prompts, :now, :now,
    (SELECT coalesce(max(touched), 0) + 1 FROM chats)
)
"""
_CHANGE_CHAT = """
UPDATE chats SET
    title = :title, tip = :tip, num_turns = :num_turns, opening = :opening, draft = :draft, system = :system,
    settings = :settings, model = :model, changed = :now, touched = (SELECT max(touched) + 1 FROM chats)
WHERE id = :id
"""
_CLOSE = "UPDATE turns SET ending = 'interrupted' WHERE indexed = 0 AND ending = 'open' AND chat NOT IN"
_PATH = """
WITH RECURSIVE path (id) AS (
    SELECT :tip
    UNION
    SELECT turns.parent FROM path JOIN turns ON turns.id = path.id
)
SELECT turns.id, parent, role, text, ending FROM path JOIN turns ON turns.id = path.id
"""
"""The turns up to a tip, in any order."""
_TREE = """
WITH RECURSIVE tree (id, parent, depth) AS (
    SELECT id, 0, 0 FROM turns WHERE tree = ?1 AND parent IS NULL
    UNION ALL
    SELECT turns.id, turns.parent, depth + 1 FROM tree JOIN turns ON turns.parent = tree.id
)
SELECT tree.id, tree.parent, turns.role, turns.text, turns.ending FROM tree JOIN turns ON turns.id = tree.id
ORDER BY depth, tree.id
"""
_UNREACHED = """
WITH RECURSIVE kept (id) AS (
    SELECT tip FROM chats WHERE tree = :tree
    UNION
    SELECT id FROM turns WHERE tree = :tree AND chat IN (SELECT id FROM chats)
    UNION
    SELECT turns.parent FROM kept JOIN turns ON turns.id = kept.id
)
SELECT id, text, indexed FROM turns
WHERE tree = :tree AND id NOT IN (SELECT id FROM kept WHERE id IS NOT NULL)
"""
"""Turns that no chat which is left has said, and on which none stands."""


Trees = dict[object, tuple[tuple[Entry, int], ...]]
"""Trees of branches by what the file calls them."""


class HistoryStore:
    """What is done with an open database."""

    def __init__(self, database: Database) -> None:
        self.database = database
        self._sql = database.connection
        self._written: set[int] = set()
        """Complete turns that are known to be in the file."""

    # --- writing ------------------------------------------------------------------------------------

    def write(self, record: ChatRecord) -> None:
        """Keep a chat as it is now, all of it or nothing.

        Raises:
            sqlite3.Error: it cannot be written.
        """
        try:
            self._write(record)
        except sqlite3.IntegrityError:  # another program swept away what was known to be there
            self._written.clear()
            self._write(record)

    def _write(self, record: ChatRecord) -> None:
        new = [entry.turn_id for entry in record.turns if entry.turn_id not in self._written]
        with self.transaction():
            self._reopen(record)
            tip = self._write_turns(record)
            self._write_chat(record, tip)
            if self.database.has_full_text and new:
                self._index(new)
        self._written.update(new)

    def _reopen(self, record: ChatRecord) -> None:
        """A reply that was cut short, and that a server has gone on with, is being written again."""
        going_on = [entry.turn_id for entry in record.turns[-1:] if entry.ending != "interrupted"]
        going_on += [record.open_turn_id] if record.open_text else []
        for turn_id in going_on:
            if turn_id in self._written:
                continue
            found = self._sql.execute(
                "SELECT id, text, indexed FROM turns WHERE id = ? AND ending = 'interrupted'", (turn_id,)
            ).fetchone()
            if found is not None:
                self._leave_index([found])
                self._sql.execute("UPDATE turns SET ending = 'open', indexed = 0 WHERE id = ?", (turn_id,))

    def _write_turns(self, record: ChatRecord) -> int | None:
        """Those that are new; returns the last."""
        parent: int | None = None
        rows: list[tuple[object, ...]] = []
        now = time.time()
        for entry in record.turns:
            if entry.turn_id not in self._written:
                model = record.model if entry.turn.role == "assistant" else ""
                rows.append((
                    entry.turn_id, record.tree_id, parent, record.chat_id, entry.turn.role,
                    storable(entry.turn.text), entry.ending, model, now,
                ))  # fmt: skip
            parent = entry.turn_id
        if record.open_text:
            text = storable(record.open_text)
            rows.append((
                record.open_turn_id, record.tree_id, parent, record.chat_id, "assistant", text, "open",
                record.model, now,
            ))  # fmt: skip
            parent = record.open_turn_id
        self._sql.executemany(_WRITE_TURN, rows)
        return parent

    def _write_chat(self, record: ChatRecord, tip: int | None) -> None:
        origin = record.origin
        first = next((entry.turn.text for entry in record.turns if entry.turn.role == "user"), record.draft)
        values = {
            "id": record.chat_id, "tree": record.tree_id, "title": storable(record.title), "tip": tip,
            "num_turns": len(record.turns) + bool(record.open_text),
            "opening": storable(one_line(first[: 4 * OPENING])[:OPENING]), "draft": storable(record.draft),
            "system": None if record.system is None else storable(record.system),
            "settings": record.settings, "model": storable(record.model),
            "origin_chat": origin.chat_id if origin else None,
            "origin_label": storable(origin.label) if origin else None,
            "origin_entries": origin.num_entries if origin else None,
            "origin_prompts": origin.num_prompts if origin else None,
            "now": time.time(),
        }  # fmt: skip
        if not self._sql.execute(_CHANGE_CHAT, values).rowcount:  # an upsert would take a new number every time
            self._sql.execute(_ADD_CHAT, values)
        self._sql.execute("DELETE FROM queued WHERE chat = ?", (record.chat_id,))
        self._sql.executemany(
            "INSERT INTO queued (chat, position, text) VALUES (?, ?, ?)",
            [(record.chat_id, position, storable(text)) for position, text in enumerate(record.queue)],
        )

    def rename(self, chat_id: int, title: str) -> None:
        """Call a chat something else."""
        with self.transaction():
            self._sql.execute("UPDATE chats SET title = ? WHERE id = ?", (storable(one_line(title)), chat_id))

    def delete(self, chat_id: int) -> None:
        """Take a chat off all lists; for a day it can be had back."""
        with self.transaction():
            self._sql.execute("UPDATE chats SET deleted = ? WHERE id = ?", (time.time(), chat_id))

    def restore(self, chat_id: int) -> None:
        """Have a deleted chat back."""
        with self.transaction():
            self._sql.execute("UPDATE chats SET deleted = NULL WHERE id = ?", (chat_id,))

    def sweep(self, *, older_than: float = _SWEEP_SECONDS) -> int:
        """Forget for good what was deleted so many seconds ago; returns how many chats that were."""
        before = time.time() - older_than
        rows = self._sql.execute("SELECT id, tree FROM chats WHERE deleted <= ?", (before,)).fetchall()
        for chat_id, tree in rows:
            with self.transaction():
                self._sql.execute("DELETE FROM chats WHERE id = ?", (chat_id,))
                self._sql.execute("UPDATE panes SET chat = NULL WHERE chat = ?", (chat_id,))
                self._forget(self._sql.execute(_UNREACHED, {"tree": tree}).fetchall())
        return len(rows)

    def _forget(self, turns: Sequence[tuple[int, str, int]]) -> None:
        self._leave_index(turns)
        self._sql.executemany("DELETE FROM turns WHERE id = ?", [(turn_id,) for turn_id, *_ in turns])
        self._written.difference_update(turn_id for turn_id, *_ in turns)

    def close_left_open(self, chats_open_elsewhere: Sequence[int]) -> None:
        """Replies that a program was writing when it was killed are as long as they got."""
        spared = ",".join(map(str, chats_open_elsewhere))
        with self.transaction():
            self._sql.execute(f"{_CLOSE} ({spared})")
            if self.database.has_full_text:
                self._index_all()

    # --- full text ----------------------------------------------------------------------------------

    def _leave_index(self, turns: Sequence[tuple[int, str, int]]) -> None:
        """These turns, with the texts by which it knows them, and whether it does."""
        if self.database.has_full_text:
            self._sql.executemany(
                "INSERT INTO texts (texts, rowid, text) VALUES ('delete', ?, ?)",
                [(turn_id, text) for turn_id, text, indexed in turns if indexed],
            )

    def _index(self, turn_ids: Sequence[int]) -> None:
        for turn_id in turn_ids:
            self._sql.execute(
                "INSERT INTO texts (rowid, text) SELECT id, text FROM turns WHERE id = ? AND indexed = 0",
                (turn_id,),
            )
            self._sql.execute("UPDATE turns SET indexed = 1 WHERE id = ? AND indexed = 0", (turn_id,))

    def rebuild_index(self) -> None:
        """The index of all texts anew, where it is damaged."""
        with self.transaction():
            self._sql.execute("INSERT INTO texts (texts) VALUES ('rebuild')")
            self._sql.execute("UPDATE turns SET indexed = 1 WHERE ending <> 'open' AND indexed = 0")

    def _index_all(self) -> None:
        """What a build of SQLite without full-text search has written."""
        left = "SELECT id FROM turns WHERE indexed = 0 AND ending <> 'open' LIMIT ?"
        while found := self._sql.execute(left, (_INDEX_AT_ONCE,)).fetchall():
            self._index([turn_id for (turn_id,) in found])

    # --- reading ------------------------------------------------------------------------------------

    def read(self, chat_id: int, trees: Trees | None = None) -> ChatRecord | None:
        """A chat as it was written last; None if there is none of this id, or it is deleted.

        `trees` are those of chats that were read before it, at the same time; its own is put there, too.
        """
        row = self._sql.execute(
            "SELECT tree, title, tip, draft, system, settings, model, origin_chat, origin_label, origin_entries,"
            " origin_prompts FROM chats WHERE id = ? AND deleted IS NULL",
            (chat_id,),
        ).fetchone()
        if row is None:
            return None
        tree, title, tip, draft, system, settings, model, *origin = row
        queue = self._sql.execute("SELECT text FROM queued WHERE chat = ? ORDER BY position", (chat_id,))
        branches = self._known_tree(tree, {} if trees is None else trees)
        return ChatRecord(
            chat_id, number_of(tree), text_of(title),
            turns=self._path(tip, branches), queue=tuple(text_of(text) for (text,) in queue), draft=text_of(draft),
            system=optional_text(system), settings=text_of(settings), model=text_of(model), origin=_origin(*origin),
            branches=branches,
        )  # fmt: skip

    def _known_tree(self, tree: object, trees: Trees) -> tuple[tuple[Entry, int], ...]:
        if tree not in trees:
            trees[tree] = tuple(self._tree(tree))
        return trees[tree]

    def _tree(self, tree: object) -> Iterator[tuple[Entry, int]]:
        for turn_id, parent, role, text, ending in self._sql.execute(_TREE, (tree,)).fetchall():
            yield Entry(Turn(_role(role), text_of(text)), _ending(ending), turn_id), parent

    def _path(self, tip: int | None, tree: tuple[tuple[Entry, int], ...]) -> tuple[Entry, ...]:
        """From the first turn to the tip, which the tree has, unless somebody else has written the file."""
        known = {entry.turn_id: (entry, parent) for entry, parent in tree}
        entries, at = [], tip
        while at in known:
            entry, at = known[at]
            entries.append(entry)
        return tuple(entries[::-1]) if at in (None, ROOT) else tuple(self._path_anywhere(tip))

    def _path_anywhere(self, tip: int | None) -> list[Entry]:
        """The same whatever trees the turns are said to be of; it may go round."""
        rows = {row[0]: row for row in self._sql.execute(_PATH, {"tip": tip}).fetchall()}
        entries: list[Entry] = []
        while (row := rows.pop(tip, None)) is not None:
            turn_id, tip, role, text, ending = row
            entries.append(Entry(Turn(_role(role), text_of(text)), _ending(ending), turn_id))
        return entries[::-1]

    def chat_of_number(self, number: int) -> int | None:
        """The id of the chat that people name so."""
        row = self._sql.execute("SELECT id FROM chats WHERE number = ? AND deleted IS NULL", (number,)).fetchone()
        return None if row is None else int(row[0])

    def last_deleted(self) -> tuple[int, str] | None:
        """The chat that was deleted last and is not swept away yet, and its title."""
        row = self._sql.execute(
            "SELECT id, title, opening FROM chats WHERE deleted IS NOT NULL"
            " ORDER BY deleted DESC, number DESC LIMIT 1"
        ).fetchone()
        if row is None:
            return None
        chat_id, title, opening = row
        return number_of(chat_id), one_line(text_of(title)) or one_line(text_of(opening)) or "new chat"

    def last_chat(self) -> int | None:
        """The chat in which something was said last."""
        row = self._sql.execute(
            "SELECT id FROM chats WHERE deleted IS NULL AND tip IS NOT NULL ORDER BY touched DESC LIMIT 1"
        ).fetchone()
        return None if row is None else int(row[0])

    # --- parts --------------------------------------------------------------------------------------

    @contextmanager
    def transaction(self) -> Iterator[sqlite3.Connection]:
        """All that is done in it, or nothing."""
        self._sql.execute("BEGIN IMMEDIATE")
        try:
            yield self._sql
            self._sql.execute("COMMIT")
        except BaseException:
            if self._sql.in_transaction:
                self._sql.execute("ROLLBACK")
            raise


def storable(text: str) -> str:
    """The same text, if it is text: half a surrogate pair, which UTF-8 cannot say, becomes U+FFFD."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return text


_ROLES: dict[str, Role] = {role: role for role in get_args(Role)}
_ENDINGS: dict[str, Ending] = {ending: ending for ending in get_args(Ending)}


def _role(text: str) -> Role:
    return _ROLES.get(text, "assistant")


def _ending(text: str) -> Ending:
    """One that is still open in the file was never closed: its program was killed."""
    return _ENDINGS.get(text, "interrupted")


def _origin(chat_id: int | None, label: str | None, entries: int | None, prompts: int | None) -> ForkOrigin | None:
    if chat_id is None:
        return None
    return ForkOrigin(0, text_of(label), number_of(entries), number_of(prompts), number_of(chat_id))
