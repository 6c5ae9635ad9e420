"""What the functions that tell events have in common: what they know, and what they give back."""

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple, Protocol

from pagedchat.engine.mirror import CacheMirror
from pagedchat.events import SequencePreempted
from pagedchat.view.chats.token_text import quote

QUOTE_CELLS = 28
"""A quotation is cut to so many cells."""


class Told(NamedTuple):
    """An event in words."""

    kind: str
    text: str
    seq_ids: tuple[int, ...] = ()
    block_ids: tuple[int, ...] = ()


class Teller(Protocol):
    """What the functions here ask of the narrator."""

    mirror: CacheMirror
    name: Callable[[int], str]
    token_texts: Mapping[int, bytes]
    gained: dict[int, int]
    lost: dict[int, SequencePreempted]


def device_blocks(teller: Teller, seq_id: int) -> tuple[int, ...]:
    """The sequence's block table."""
    sequence = teller.mirror.sequences.get(seq_id)
    return tuple(sequence.block_table) if sequence else ()


def quoted(teller: Teller, tokens: Sequence[int], width: int = QUOTE_CELLS) -> str:
    """The tokens' text between quotation marks; one whose text is not known is told by its number."""
    texts = teller.token_texts
    return quote(tokens, {token: texts.get(token) or b"#%d" % token for token in tokens}, width)
