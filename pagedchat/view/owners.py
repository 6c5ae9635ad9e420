"""Which number and which letter stand for an owner of blocks, the same in every panel."""

import re

from pagedchat.cache_events import ANOTHERS

GLYPHS = "123456789abcdefghijklmnopqrstuvwxyz"

ANOTHERS_GLYPH = "~"
"""Of all sequences of other clients."""
ALL_GLYPHS = GLYPHS + ANOTHERS_GLYPH

_LEADING_NUMBER = re.compile(r"\d+")


def unnamed(seq_id: int) -> str:
    """What a sequence is called for which there is no label."""
    return "another client" if seq_id >= ANOTHERS else f"seq {seq_id}"


def owner_number(seq_id: int, label: str) -> int:
    """The number that people see in the label (`"2 code"` -> 2), else the sequence's own."""
    match = _LEADING_NUMBER.match(label)
    return int(match[0]) if match else seq_id


def owner_glyph(number: int) -> str:
    """`1` to `9`, then `a` to `z`, then over again; one sign for all of other clients."""
    if number >= ANOTHERS:
        return ANOTHERS_GLYPH
    return GLYPHS[(number - 1) % len(GLYPHS)]
