"""Lists of chats: the newest first, or those in which something was said.

With FTS5 words are found by their beginnings, accents and case aside; without it, and in scripts that put no space
between words, the text is looked through as it stands. Reads only.
"""

import re
from collections.abc import Callable, Iterable, Sequence

from pagedchat.chat.sanitize import one_line
from pagedchat.history.database import Database
from pagedchat.history.records import FoundChat, FoundChats
from pagedchat.history.values import number_of, seconds_of, text_of

MOST_SHOWN = 200
"""Chats of one list; who searches for more says more."""
_MOST_HITS = 2000
"""Turns, the newest first, that a search looks at: a word that is everywhere finds the chats of last time."""
_AROUND = 30
"""Characters before what was found."""
_PASSAGE = 200
_NO_SPACES = "[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u9fff\uf900-\ufaff\uff66-\uff9f]"
"""Thai, Lao, Burmese, Khmer, Japanese, Chinese; compiled with the first search, which takes two milliseconds."""

_Row = tuple[int, int, str, int, str, float, str, str]
"""The first fields of a `FoundChat`, and the passage."""
_COLUMNS = "number, chats.id, title, num_turns, opening, changed, chats.model"
_PANES = """
SELECT panes.chat, windows.owner, windows.process FROM panes JOIN windows ON windows.id = panes.window
WHERE panes.chat IS NOT NULL
"""
_BELOW = """
WITH RECURSIVE below (id) AS (
    SELECT id FROM hits
    UNION
    SELECT turns.id FROM below JOIN turns ON turns.parent = below.id
)
"""
"""Every turn that comes after one that was found: a chat that stands on one of them says it."""
_FIRST_HIT = """
WITH RECURSIVE path (id, parent) AS (
    SELECT id, parent FROM turns WHERE id = (SELECT tip FROM chats WHERE id = ?)
    UNION
    SELECT turns.id, turns.parent FROM path JOIN turns ON turns.id = path.parent
)
SELECT text FROM turns WHERE id = (SELECT path.id FROM path WHERE path.id IN (SELECT id FROM hits) LIMIT 1)
"""


class HistorySearch:
    """Looks into an open database.

    Args:
        database: the history.
        is_there: whether the program of this number runs, other than this one.
    """

    def __init__(self, database: Database, is_there: Callable[[int], bool]) -> None:
        self._database = database
        self._sql = database.connection
        self._is_there = is_there

    def chats(self, text: str = "", limit: int = MOST_SHOWN) -> FoundChats:
        """The chats that have all these words in their turns or in their title; all of them if there are none.

        Raises:
            sqlite3.Error: they cannot be read.
        """
        words = text.split()
        (num_all,) = self._sql.execute("SELECT count(*) FROM chats WHERE deleted IS NULL").fetchone()
        rows = self._matching(words, limit) if words else self._newest(limit)
        open_in = self.open_elsewhere() if rows else {}
        return FoundChats(tuple(_found(row, open_in.get(row[1])) for row in rows), num_all)

    def open_elsewhere(self) -> dict[int, int]:
        """The chats that other programs have open, and the processes of these."""
        found = self._sql.execute(_PANES).fetchall()
        there = {owner for owner in {owner for _, owner, _ in found} if self._is_there(owner)}
        return {chat: process for chat, owner, process in found if owner in there}

    def _newest(self, limit: int) -> list[_Row]:
        return self._sql.execute(
            f"SELECT {_COLUMNS}, '' FROM chats WHERE deleted IS NULL ORDER BY touched DESC LIMIT ?",  # noqa: S608
            (limit,),
        ).fetchall()

    def _matching(self, words: Sequence[str], limit: int) -> list[_Row]:
        self._sql.execute("CREATE TEMP TABLE IF NOT EXISTS hits (id INTEGER PRIMARY KEY)")
        self._sql.execute("DELETE FROM hits")
        self._find_turns(words)
        titles = " AND ".join("title LIKE ? ESCAPE '\\'" for _ in words)
        rows = self._sql.execute(
            f"{_BELOW} SELECT {_COLUMNS} FROM chats WHERE deleted IS NULL"  # noqa: S608 - the words are bound
            f" AND (tip IN (SELECT id FROM below) OR ({titles})) ORDER BY touched DESC LIMIT ?",
            (*map(_like, words), limit),
        ).fetchall()
        return [(*row, self._passage(row[1], words)) for row in rows]

    def _find_turns(self, words: Sequence[str]) -> None:
        query = _full_text_query(words) if self._database.has_full_text else ""
        if query:
            self._sql.execute(
                "INSERT INTO hits SELECT rowid FROM texts WHERE texts MATCH ? ORDER BY rowid DESC LIMIT ?",
                (query, _MOST_HITS),
            )
            return
        wanted = " AND ".join("text LIKE ? ESCAPE '\\'" for _ in words)
        self._sql.execute(
            f"INSERT INTO hits SELECT id FROM turns WHERE {wanted} ORDER BY id DESC LIMIT ?",  # noqa: S608 - bound
            (*map(_like, words), _MOST_HITS),
        )

    def _passage(self, chat_id: int, words: Sequence[str]) -> str:
        row = self._sql.execute(_FIRST_HIT, (chat_id,)).fetchone()
        return "" if row is None else passage(text_of(row[0]), words)


def _found(row: _Row, open_in: int | None) -> FoundChat:
    number, chat_id, title, num_turns, opening, changed, model, around = row
    return FoundChat(
        number, chat_id, text_of(title), number_of(num_turns), text_of(opening), seconds_of(changed),
        text_of(model), open_in, around,
    )  # fmt: skip


def passage(text: str, words: Iterable[str]) -> str:
    """One line of a text, from a little before the first of these words."""
    folded = text.casefold()
    places = [place for word in words if (place := folded.find(word.casefold())) >= 0]
    start = max(0, min(places, default=0) - _AROUND)
    line = one_line(text[start : start + 2 * _PASSAGE])[:_PASSAGE]
    return f"…{line}" if start else line


def _full_text_query(words: Sequence[str]) -> str:
    """Every word as the beginning of one; empty where words are not what the index knows."""
    if any(re.search(_NO_SPACES, word) or not any(map(str.isalnum, word)) for word in words):
        return ""
    return " ".join('"{}"*'.format(word.replace('"', '""')) for word in words)


def _like(word: str) -> str:
    return "%{}%".format(re.sub(r"([%_\\])", r"\\\1", word))
