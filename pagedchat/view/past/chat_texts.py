"""The chats' text as it was at an earlier moment, made of the tokens that their sequences had then, and as rows.

The turns that a chat keeps know no history; the mirror of the moment does. What it gives is what the model saw:
the prompt with its template, the replies, and nothing of what has been written since. Drawn together, every chat
gets its share of the height and shows its end. Knows no widgets.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from pagedchat.chat.sanitize import drawable
from pagedchat.view.chats.wrap import wrap
from pagedchat.view.engine_view import EngineView
from pagedchat.view.sentences.token_text import UNKNOWN

MIN_ROWS = 3
"""A title and two rows of text; chats for which not even that is left are told as a number."""


def past_text(view: EngineView, seq_id: int) -> str | None:
    """What the sequence held at the moment shown.

    `None` while the present is shown, and where there was no such sequence then.
    """
    if view.past is None or (sequence := view.past.mirror.sequences.get(seq_id)) is None:
        return None
    return text_of(sequence.token_ids, view.token_texts)


def text_of(token_ids: Iterable[int], token_texts: Mapping[int, bytes]) -> str:
    """The tokens' bytes one after the other as text; what is no whole character becomes U+FFFD."""
    joined = b"".join([token_texts.get(token_id, UNKNOWN) for token_id in token_ids])
    return joined.decode("utf-8", "replace")


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
    end = drawable(chat.text.rstrip()[-width * height :])  # more characters do not fit; and no accent comes first
    lines = [row.text for row in wrap(end, width)] if end else []
    shown = lines[len(lines) - min(len(lines), max(0, height - 1)) :]
    rows = [PastRow(chat.title, chat.seq_id), *map(PastRow, shown)]
    return rows + [PastRow("")] * (height - len(rows))
