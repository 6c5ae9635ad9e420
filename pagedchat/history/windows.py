"""Which chats a program has open, and how they stood when it ended: what `--continue` brings back.

A window belongs to one program at a time. One whose program is gone is taken over by the next that wants it; what
another has open is never taken away from it. Knows no screen.
"""

import json
import os
from contextlib import suppress

from pagedchat.history.presence import Presence
from pagedchat.history.records import LayoutRecord, PaneRecord
from pagedchat.history.store import HistoryStore
from pagedchat.history.values import number_of

_MOST_NAMES = 9
"""Of engines and servers side by side."""
_KEPT = 20
"""Windows of programs that are gone."""


class Windows:
    """The windows of an open history.

    Args:
        store: the history.
        presence: which programs are there.
    """

    def __init__(self, store: HistoryStore, presence: Presence) -> None:
        self._store = store
        self._sql = store.database.connection
        self._presence = presence

    def write(self, layout: LayoutRecord) -> None:
        """Keep how this program's chats stand; with nothing in them there is nothing to keep.

        Raises:
            sqlite3.Error: it cannot be written.
        """
        owner = self._presence.owner
        with self._store.transaction():
            row = self._sql.execute("SELECT id FROM windows WHERE owner = ?", (owner,)).fetchone()
            if row is None and not any(pane.chat_id for pane in layout.panes):
                return
            window = self._new() if row is None else int(row[0])
            self._sql.execute(
                "UPDATE windows SET focused = ?, wanted = ?, zoomed = ?, models = ?, touched = "
                "(SELECT max(touched) + 1 FROM windows) WHERE id = ?",
                (layout.focused, layout.wanted, layout.zoomed, json.dumps(layout.models), window),
            )
            self._sql.execute("DELETE FROM panes WHERE window = ?", (window,))
            self._sql.executemany(
                "INSERT INTO panes (window, position, number, chat, beside) VALUES (?, ?, ?, ?, ?)",
                [
                    (window, position, pane.number, pane.chat_id, pane.beside)
                    for position, pane in enumerate(layout.panes)
                ],
            )

    def _new(self) -> int:
        cursor = self._sql.execute(
            "INSERT INTO windows (owner, process, focused, zoomed, touched) VALUES (?, ?, 0, 0, 0)",
            (self._presence.owner, os.getpid()),
        )
        return int(cursor.lastrowid or 0)

    def take_over(self) -> LayoutRecord | None:
        """The window that was used last and that nobody has, for this program from now on; None if there is none.

        Raises:
            sqlite3.Error: it cannot be read or written.
        """
        if self._store.database.read_only:
            return self._read(next(iter(self._left()), None))
        with self._store.transaction():
            window = next(iter(self._left()), None)
            self._sql.execute(
                "UPDATE windows SET owner = ?, process = ? WHERE id = ?",
                (self._presence.owner, os.getpid(), window),
            )
            return self._read(window)

    def elsewhere(self) -> int | None:
        """The process of another program that has chats open, if there is one."""
        rows = self._sql.execute("SELECT owner, process FROM windows ORDER BY touched DESC").fetchall()
        return next((int(process) for owner, process in rows if self._presence.is_there(owner)), None)

    def open_elsewhere(self) -> list[int]:
        """The chats that other programs have open."""
        rows = self._sql.execute(
            "SELECT owner, chat FROM windows JOIN panes ON panes.window = windows.id WHERE chat IS NOT NULL"
        ).fetchall()
        there = {owner for owner in {owner for owner, _ in rows} if self._presence.is_there(owner)}
        return [chat for owner, chat in rows if owner in there]

    def sweep(self) -> None:
        """Forget old windows whose programs are gone; their chats stay."""
        with self._store.transaction():
            for window in self._left()[_KEPT:]:
                self._sql.execute("DELETE FROM windows WHERE id = ?", (window,))

    def _left(self) -> list[int]:
        """Windows that nobody has, the one that was used last first."""
        rows = self._sql.execute("SELECT id, owner FROM windows ORDER BY touched DESC, id DESC").fetchall()
        own = self._presence.owner
        return [window for window, owner in rows if owner != own and not self._presence.is_there(owner)]

    def _read(self, window: int | None) -> LayoutRecord | None:
        row = self._sql.execute(
            "SELECT focused, wanted, zoomed, models FROM windows WHERE id = ?", (window,)
        ).fetchone()
        if row is None:
            return None
        panes = self._sql.execute(
            "SELECT number, chat, beside FROM panes WHERE window = ? ORDER BY position", (window,)
        )
        focused, wanted, zoomed, models = row
        return LayoutRecord(
            tuple(PaneRecord(number_of(number), chat, number_of(beside)) for number, chat, beside in panes),
            number_of(focused),
            number_of(wanted) or None,
            bool(zoomed),
            _names(models),
        )


def _names(models: object) -> tuple[str, ...]:
    """Of what somebody else may have written: some names, or none."""
    with suppress(ValueError, TypeError):
        names = json.loads(models)  # type: ignore[arg-type]  # which raises a TypeError then
        if (
            isinstance(names, list)
            and len(names) <= _MOST_NAMES
            and all(isinstance(name, str) and name for name in names)
        ):
            return tuple(names)
    return ()
