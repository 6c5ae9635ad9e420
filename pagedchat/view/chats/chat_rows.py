"""All rows of a chat, kept from one look to the next: what did not change is not made again, nor looked at.

Of a chat with very much text only the turns are made that somebody looks at; how many rows the others will have is
guessed. Knows a session and a width; draws nothing.
"""

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import msgspec

from pagedchat.chat.session import ChatSession
from pagedchat.chat.turns import Entry
from pagedchat.view.chats.reading import Reading
from pagedchat.view.chats.transcript_rows import (
    BLANK,
    EMPTY_REPLY,
    PENDING,
    Document,
    Row,
    document,
    guessed_rows,
    hint_rows,
    marker_rows,
    past_rows,
    remarks,
    turn_rows,
)
from pagedchat.view.sentences.words import count


class _Line(NamedTuple):
    """A line of the program's own, as a key."""

    kind: str
    text: str
    elsewhere: bool = False
    """Whether a server answers in the chat."""

    def rows(self, width: int) -> list[Row]:
        if self.kind == "hint":
            return hint_rows(self.text, width, elsewhere=self.elsewhere)
        return marker_rows(self.text, width)


MAX_AT_ONCE = 10_000
"""Characters of turns that are made without being looked at."""
_OPEN = _Line("open", "")
"""Stands for the reply that is being written."""


class Part(msgspec.Struct):
    """Rows that change together: a turn, or a line of the program's own."""

    turn: int
    """Index of the turn that they show, as in `Passage`; -1 for what is no turn."""
    first: int
    """Its first row in the chat."""
    num_rows: int
    before: int = 0
    """Rows before those of the document."""
    document: Document | None = None
    entry: Entry | None = None
    """What it is made of, if it is yet to be made."""


class Splice(NamedTuple):
    """Rows that took the place of others."""

    first: int
    num_before: int
    num_rows: int


class ChatRows:
    """The rows of one chat."""

    def __init__(self) -> None:
        self.rows: list[Row] = []
        self.parts: list[Part] = []
        self._keys: list[object] = []
        self._layout: object = None
        """What all rows depend on."""
        self._width, self._reading = 0, Reading()
        self._seen: object = None
        """What the keys depend on beside the entries; None: they are to be looked at."""
        self._entries: list[Entry] = []
        self._toggled: dict[int, frozenset[int]] = {}
        """Turn -> thoughts that are not as the setting wants them."""

    def update(
        self, session: ChatSession, width: int, marker: str, note: str, reading: Reading, *, elsewhere: bool = False
    ) -> int:
        """Take over what changed; returns the first row that is another one than before."""
        layout = (width, note, reading, elsewhere)
        if layout != self._layout:
            self._layout, self._width, self._reading = layout, width, reading
            self._keys, self.parts, self.rows = [], [], []
            self._seen = None
        if self._seen == (session.busy, marker) and self._entries == session.entries:
            return self._write_on(self.parts[-1], session.open_text) if session.busy else len(self.rows)
        self._seen, self._entries = (session.busy, marker), [*session.entries]
        keys = _keys(session, marker, _Line("hint", note, elsewhere))
        common = _num_common(self._keys, keys)
        kept_open = common and keys[common - 1] is _OPEN
        first = len(self.rows)
        if kept_open:
            first = self._write_on(self.parts[common - 1], session.open_text)
        return min(first, self._replace(common, keys, session))

    def show_past(self, text: str, width: int) -> int:
        """All of the chat at an earlier step; returns the first row that is another one."""
        layout = (width, text)
        if layout == self._layout:
            return len(self.rows)
        before, self._layout, self._keys = self.rows, layout, []
        self.rows = past_rows(text, width)
        self.parts = [Part(0 if text else -1, 0, len(self.rows))]
        return _first_difference(before, self.rows)

    def make(self, first: int, last: int) -> list[Splice]:
        """Make the turns of which rows `first` to `last` are; tells which rows took the place of guessed ones."""
        made: list[Splice] = []
        index = max(0, bisect_right(self.parts, first, key=lambda part: part.first) - 1)
        while index < len(self.parts) and self.parts[index].first < last:
            if self.parts[index].entry is not None:
                made.append(self._make(index))
            index += 1
        return made

    def make_turns(self, turns: Sequence[int]) -> list[Splice]:
        """The same for these turns."""
        indices = [index for index, part in enumerate(self.parts) if part.entry and part.turn in turns]
        return [self._make(index) for index in indices]

    def part_at(self, row: int) -> Part | None:
        """The part that this row belongs to."""
        index = bisect_right(self.parts, row, key=lambda part: part.first) - 1
        return self.parts[index] if index >= 0 else None

    def parts_of(self, turns: Sequence[int]) -> Iterator[Part]:
        """The parts that show these turns."""
        wanted = set(turns)
        return (part for part in self.parts if part.turn in wanted)

    def toggle_thought(self, row: int) -> bool:
        """Fold or open the thought for which this row stands; false if it stands for none."""
        part = self.part_at(row)
        if part is None or part.document is None:
            return False
        number = part.document.thought_at(row - part.first - part.before)
        if number is None:
            return False
        self._toggled[part.turn] = self._toggled.get(part.turn, frozenset()) ^ {number}
        self._forget(part)
        return True

    def last_thought(self) -> int | None:
        """The row that stands for the newest thought."""
        for part in reversed(self.parts):
            if part.document is None:
                continue
            for row in reversed(range(len(part.document.rows))):
                if part.document.thought_at(row) is not None:
                    return part.first + part.before + row
        return None

    # --- parts --------------------------------------------------------------------------------------

    def _make(self, index: int) -> Splice:
        part = self.parts[index]
        assert part.entry is not None  # noqa: S101 - asked before
        rows = self._turn(part, part.entry, part.entry.turn.text, None)
        before, part.entry, part.num_rows = part.num_rows, None, len(rows)
        self.rows[part.first : part.first + before] = rows
        for later in self.parts[index + 1 :]:
            later.first += len(rows) - before
        return Splice(part.first, before, len(rows))

    def _forget(self, part: Part) -> None:
        """Make this part anew with the next update."""
        self._keys[self.parts.index(part)] = None
        self._seen = None

    def _write_on(self, part: Part, text: str) -> int:
        """More of the reply that is being written."""
        assert part.document is not None  # noqa: S101 - it was made so
        before = len(part.document.rows)
        changed = min(part.document.update(text, finished=False), max(0, before - 1))
        return self._set_rows(part, changed, being_written=True)

    def _set_rows(self, part: Part, changed: int, *, being_written: bool) -> int:
        """Rows of the last part's document from `changed` on."""
        assert part.document is not None  # noqa: S101 - it was made so
        first = part.first + part.before + changed
        self.rows[first:] = turn_rows("assistant", part.document.rows, changed, being_written=being_written)
        part.num_rows = len(self.rows) - part.first
        return first

    def _replace(self, common: int, keys: list[object], session: ChatSession) -> int:
        """Make the parts behind the first `common` ones."""
        gone, gone_keys = self.parts[common:], self._keys[common:]
        if not gone and common == len(keys):
            return len(self.rows)
        first = gone[0].first if gone else len(self.rows)
        before = self.rows[first:]
        del self.rows[first:], self.parts[common:]
        turn = 1 + next((part.turn for part in reversed(self.parts) if part.turn >= 0), -1)
        at_once = sum(len(key.turn.text) for key in keys[common:] if isinstance(key, Entry)) <= MAX_AT_ONCE
        for index, key in enumerate(keys[common:]):
            old, old_key = (gone[index], gone_keys[index]) if index < len(gone) else (None, None)
            if isinstance(key, Entry) and key is old_key and old is not None:
                self._add(old, before[old.first - first : old.first - first + old.num_rows])
            elif isinstance(key, Entry) or key is _OPEN:
                written = old.document if old is not None and old_key is _OPEN else None
                self._add_turn(key, turn, session, written, at_once=at_once)
            elif isinstance(key, _Line):
                self._add(Part(-1, 0, 0), key.rows(self._width))
            turn += isinstance(key, Entry)
        self._keys = keys
        return first + _first_difference(before, self.rows[first:])

    def _add_turn(
        self, key: object, turn: int, session: ChatSession, written: Document | None, *, at_once: bool
    ) -> None:
        entry = key if isinstance(key, Entry) else None
        part = Part(turn, 0, 0)
        if entry is not None and not at_once and written is None:
            part.entry = entry
            self._add(part, [PENDING] * guessed_rows(entry.turn.text, self._width))
            return
        self._add(part, self._turn(part, entry, entry.turn.text if entry else session.open_text, written))

    def _turn(self, part: Part, entry: Entry | None, text: str, written: Document | None) -> list[Row]:
        """The rows of a turn, or of the reply that is being written; `written` is what it was made by so far."""
        role = entry.turn.role if entry is not None else "assistant"
        made = written if role == "assistant" else None
        made = made or document(role, self._width, self._reading, self._toggled.get(part.turn, frozenset()))
        made.update(text, finished=entry is not None)
        rows = turn_rows(role, made.rows, 0, being_written=entry is None)
        if entry is not None:
            rows = (rows if text else [EMPTY_REPLY]) + remarks(entry)
        lead = [BLANK] if part.turn > 0 and role == "user" else []
        part.document, part.before = made, len(lead)
        return lead + rows

    def _add(self, part: Part, rows: list[Row]) -> None:
        part.first, part.num_rows = len(self.rows), len(rows)
        self.parts.append(part)
        self.rows += rows


def _keys(session: ChatSession, marker: str, hint: _Line) -> list[object]:
    """What there is to be shown, in order; `hint` where nothing is."""
    keys: list[object] = [*session.entries]
    if session.busy:
        keys.append(_OPEN)
    elif not keys:
        keys.append(hint)
    lines = []
    if 0 < session.num_left_out <= len(session.entries):
        told = f"the model no longer sees the {count(session.num_left_out, 'turn')} above"
        lines.append((session.num_left_out, _Line("marker", told)))
    if session.origin and marker:
        lines.append((min(session.origin.num_entries, len(session.entries)), _Line("marker", marker)))
    for place, line in sorted(lines, key=lambda found: -found[0]):  # from the end, so that places stay
        keys.insert(place, line)
    return keys


def _num_common(old: list[object], new: list[object]) -> int:
    """Leading keys that are the same; lists compare fast."""
    length = min(len(old), len(new))
    if old[:length] == new[:length]:
        return length
    return next(index for index in range(length) if old[index] != new[index])


def _first_difference(old: Sequence[Row], new: Sequence[Row]) -> int:
    for index, (before, after) in enumerate(zip(old, new, strict=False)):
        if before != after:
            return index
    return min(len(old), len(new))
