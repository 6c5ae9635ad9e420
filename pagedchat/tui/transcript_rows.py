"""A chat's turns as rows of text for a given width. Knows sessions and widths; draws nothing."""

from collections.abc import Callable, Iterator
from functools import partial
from typing import NamedTuple

from pagedchat.chat.sanitize import one_line, sanitize
from pagedchat.chat.session import ChatSession, Entry, Role
from pagedchat.tui.wrap import wrap

GUTTER = 6
"""Cells before the text: `"you ▏ "`."""
NO_GUTTER = frozenset({"marker", "hint", "blank"})

_SPEAKERS: dict[Role, str] = {"system": "sys ", "user": "you ", "assistant": "ai  "}
_HINT = "Nothing said yet. F7 sends a prompt to all chats, F9 forks a chat, F3 shows its blocks."
_REMARKS = {
    "stopped": "stopped",
    "interrupted": "interrupted: the engine ended",
    "length": "cut at the token limit",
}


class Row(NamedTuple):
    """One drawn row: gutter and text."""

    kind: str
    """Names the style: a role, `open` (the last row of the reply being written), `remark`, and those without a
    gutter: `marker`, `hint`, `blank`."""
    speaker: str
    """Four cells, blank but in a turn's first row."""
    text: str
    joiner: str
    """What stands before this row when rows are joined to text; see `wrap`."""


class RowBlock(NamedTuple):
    """Rows that change together, and what they depend on."""

    key: object
    rows: list[Row]


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
    wrapped = wrap(sanitize(text).rstrip("\n"), width - GUTTER)
    return [
        Row(role, _SPEAKERS[role] if index == 0 else "    ", row.text, row.joiner)
        for index, row in enumerate(wrapped)
    ]


def marker_rows(text: str, width: int, kind: str = "marker") -> list[Row]:
    """A line of the program's own, without a gutter."""
    return [_plain(kind, row.text, row.joiner) for row in wrap(one_line(text), width)]


def session_blocks(
    session: ChatSession, width: int, marker: str, note: str, known: list[RowBlock]
) -> list[RowBlock]:
    """All rows of a chat; blocks whose key is still the same are taken over from `known`."""
    blocks: list[RowBlock] = []
    for key, make_rows in _parts(session, width, marker, note):
        index = len(blocks)
        same = index < len(known) and known[index].key == key
        blocks.append(known[index] if same else RowBlock(key, make_rows()))
    return blocks


def _parts(
    session: ChatSession, width: int, marker: str, note: str
) -> Iterator[tuple[object, Callable[[], list[Row]]]]:
    """`(key, how to make the rows)` of the turns in order, of the fork marker, and of the reply being written."""
    marked = session.origin.num_entries if session.origin and marker else None
    for index, entry in enumerate(session.entries):
        if index == marked:
            yield ("marker", marker, width), partial(marker_rows, marker, width)
        yield (entry, width, index == 0), partial(entry_rows, entry, width, first=index == 0)
    if marked is not None and marked >= len(session.entries):
        yield ("marker", marker, width), partial(marker_rows, marker, width)
    if not session.entries and not session.busy:
        yield ("hint", note, width), partial(_hint_rows, note, width)
    if session.busy:
        yield ("open", len(session.open_text), width), partial(_open_rows, session.open_text, width)


def _hint_rows(note: str, width: int) -> list[Row]:
    rows = marker_rows(_HINT, width, "hint")
    return [*rows, _plain("blank", ""), *marker_rows(note, width, "hint")] if note else rows


def _open_rows(text: str, width: int) -> list[Row]:
    *rows, last = text_rows("assistant", text, width)
    return [*rows, last._replace(kind="open")]


def _plain(kind: str, text: str, joiner: str = "\n") -> Row:
    return Row(kind, "    ", text, joiner)
