"""A chat's text as it was at an earlier moment, made of the tokens that its sequence had then.

The turns that a chat keeps know no history; the mirror of the moment does. What it gives is what the model saw:
the prompt with its template, the replies, and nothing of what has been written since. Knows no widgets.
"""

from collections.abc import Iterable, Mapping

from pagedchat.chat.sanitize import sanitize
from pagedchat.view.engine_view import EngineView

UNKNOWN = "\ufffd".encode()
"""Stands for a token whose text was never told."""


def past_text(view: EngineView, seq_id: int) -> str | None:
    """What the sequence held at the moment shown, safe to draw.

    `None` while the present is shown, and where there was no such sequence then.
    """
    if view.past is None or (sequence := view.past.mirror.sequences.get(seq_id)) is None:
        return None
    return text_of(sequence.token_ids, view.token_texts)


def text_of(token_ids: Iterable[int], token_texts: Mapping[int, bytes]) -> str:
    """The tokens' bytes one after the other as text; what is no whole character becomes U+FFFD."""
    joined = b"".join([token_texts.get(token_id, UNKNOWN) for token_id in token_ids])
    return sanitize(joined.decode("utf-8", "replace"))
