"""A chat's turns as rows of text for a given width. Knows sessions and widths; draws nothing."""

from collections.abc import Callable, Iterator
from functools import partial
from typing import NamedTuple

from pagedchat.chat.sanitize import one_line
from pagedchat.chat.session import ChatSession, Entry, Role
from pagedchat.view.chats.chat_tokens import drawn_text
from pagedchat.view.chats.wrap import wrap
from pagedchat.view.engine_view import EngineView
from pagedchat.view.key_names import with_keys
from pagedchat.view.sentences.words import count

GUTTER = 6
"""Cells before the text: `"you ▏ "`."""
NO_GUTTER = frozenset({"marker", "hint", "blank", "past"})
_NO_TEXT = frozenset({"marker", "hint", "blank", "remark"})

_SPEAKERS: dict[Role, str] = {"system": "sys ", "user": "you ", "assistant": "ai  "}
_HINT = "Nothing said yet. F7 sends a prompt to all chats, F9 forks a chat, F3 shows its blocks."
_NOT_YET = "This chat had no text at this step."
_REMARKS = {
    "stopped": "stopped",
    "interrupted": "interrupted: the engine ended",
    "length": "cut at the token limit",
}


class Row(NamedTuple):
    """One drawn row: gutter and text."""

    kind: str
    """Names the style: a role, `open` (the last row of the reply being written), `remark`, and those without a
    gutter: `marker`, `hint`, `blank`, `past`."""
    speaker: str
    """Four cells, blank but in a turn's first row."""
    text: str
    joiner: str
    """What stands before this row when rows are joined to text; see `wrap`."""


class RowBlock(NamedTuple):
    """Rows that change together, and what they depend on."""

    key: object
    rows: list[Row]
    turn: int = -1
    """Index of the turn that they show, as in `Passage`; -1 for what is no turn."""

    def starts(self) -> list[int]:
        """For each row where its text begins in the turn's drawn text; -1 for a row that shows none of it."""
        found: list[int] = []
        position = -1  # the first row's joiner is the line end before the turn
        for row in self.rows:
            if self.turn < 0 or row.kind in _NO_TEXT:
                found.append(-1)
                continue
            position += len(row.joiner)
            found.append(position)
            position += len(row.text)
        return found


def entry_rows(entry: Entry, width: int, *, first: bool) -> list[Row]:
    """Rows of one turn. A user's turn is set off from the reply before it by a blank row."""
    rows = text_rows(entry.turn.role, entry.turn.text, width)
    if not entry.turn.text:
        rows = [_plain("remark", "an empty reply")]
    if remark := _REMARKS.get(entry.ending):
        rows.append(_plain("remark", remark))
    return rows if first or entry.turn.role != "user" else [_plain("blank", ""), *rows]


def text_rows(role: Role, text: str, width: int) -> list[Row]:
    """Rows of text spoken by `role`; `width` includes the gutter."""
    wrapped = wrap(drawn_text(text), width - GUTTER)
    return [
        Row(role, _SPEAKERS[role] if index == 0 else "    ", row.text, row.joiner)
        for index, row in enumerate(wrapped)
    ]


def marker_rows(text: str, width: int, kind: str = "marker") -> list[Row]:
    """A line of the program's own, without a gutter."""
    return [_plain(kind, row.text, row.joiner) for row in wrap(one_line(text), width)]


def fork_marker(session: ChatSession, view: EngineView) -> str:
    """The line a fork begins with: where it comes from and what it still shares with it."""
    origin = session.origin
    if origin is None:
        return ""
    line = f"⑂ from {one_line(origin.label)} at turn {origin.num_prompts}"
    shared = view.shared_with(session.session_id).get(origin.session_id, 0)
    if shared:
        line += f" · {count(shared, 'block')} shared"
    if copies := view.shown.num_copied(session.session_id):
        line += f" · {copies} copied"
    return line


def session_blocks(
    session: ChatSession, width: int, marker: str, note: str, known: list[RowBlock]
) -> list[RowBlock]:
    """All rows of a chat; blocks whose key is still the same are taken over from `known`."""
    blocks: list[RowBlock] = []
    for key, turn, make_rows in _parts(session, width, marker, note):
        index = len(blocks)
        same = index < len(known) and known[index].key == key
        blocks.append(known[index] if same else RowBlock(key, make_rows(), turn))
    return blocks


def past_blocks(text: str, width: int, known: list[RowBlock]) -> list[RowBlock]:
    """The rows of a chat as it was: one text, template and all, or a word on why there is none."""
    key = ("past", text, width)
    if known and known[0].key == key:
        return known[:1]
    if not text:
        return [RowBlock(key, marker_rows(_NOT_YET, width, "hint"))]
    rows = [_plain("past", row.text, row.joiner) for row in wrap(drawn_text(text), width)]
    return [RowBlock(key, rows, 0)]


def _parts(
    session: ChatSession, width: int, marker: str, note: str
) -> Iterator[tuple[object, int, Callable[[], list[Row]]]]:
    """`(key, turn, how to make the rows)` of the turns in order, of the fork marker, of the reply being written."""
    marked = session.origin.num_entries if session.origin and marker else None
    for index, entry in enumerate(session.entries):
        if index == marked:
            yield ("marker", marker, width), -1, partial(marker_rows, marker, width)
        if index == session.num_left_out > 0:
            line = f"the model no longer sees the {count(index, 'turn')} above"
            yield ("left out", index, width), -1, partial(marker_rows, line, width)
        yield (entry, width, index == 0), index, partial(entry_rows, entry, width, first=index == 0)
    if marked is not None and marked >= len(session.entries):
        yield ("marker", marker, width), -1, partial(marker_rows, marker, width)
    if not session.entries and not session.busy:
        yield ("hint", note, width), -1, partial(_hint_rows, note, width)
    if session.busy:
        turn = len(session.entries)
        yield ("open", len(session.open_text), width), turn, partial(_open_rows, session.open_text, width)


def _hint_rows(note: str, width: int) -> list[Row]:
    rows = marker_rows(with_keys(_HINT), width, "hint")
    return [*rows, _plain("blank", ""), *marker_rows(note, width, "hint")] if note else rows


def _open_rows(text: str, width: int) -> list[Row]:
    *rows, last = text_rows("assistant", text, width)
    return [*rows, last._replace(kind="open")]


def _plain(kind: str, text: str, joiner: str = "\n") -> Row:
    return Row(kind, "    ", text, joiner)
