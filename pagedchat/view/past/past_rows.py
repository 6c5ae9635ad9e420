"""The chats' text at an earlier moment as rows: every chat gets its share of the height and shows its end.

Pure: texts and sizes in, rows out.
"""

from collections.abc import Sequence
from typing import NamedTuple

from pagedchat.view.chats.wrap import wrap

MIN_ROWS = 3
"""A title and two rows of text; chats for which not even that is left are told as a number."""


class PastChat(NamedTuple):
    """One sequence then."""

    seq_id: int
    title: str
    text: str


class PastRow(NamedTuple):
    """One row; titles are drawn differently, in the colour of their sequence."""

    text: str
    title_of: int | None = None


def past_rows(chats: Sequence[PastChat], width: int, height: int) -> list[PastRow]:
    """At most `height` rows of `width` cells."""
    if width < 2 or height < 1 or not chats:
        return []
    num_shown = min(len(chats), max(1, height // MIN_ROWS))
    hidden = len(chats) - num_shown
    room = height - (1 if hidden else 0)
    rows: list[PastRow] = []
    for index, chat in enumerate(chats[:num_shown]):
        share = room // num_shown + (index < room % num_shown)
        rows += _chat_rows(chat, width, share)
    if hidden:
        rows.append(PastRow(f"and {hidden} more"[:width]))
    return rows[:height]


def _chat_rows(chat: PastChat, width: int, height: int) -> list[PastRow]:
    """The title, the last rows of the text, and nothing below them."""
    end = chat.text.rstrip()[-width * height :]  # more characters do not fit, so more need not be wrapped
    lines = [row.text for row in wrap(end, width)] if end else []
    shown = lines[len(lines) - min(len(lines), max(0, height - 1)) :]
    rows = [PastRow(chat.title, chat.seq_id), *map(PastRow, shown)]
    return rows + [PastRow("")] * (height - len(rows))
