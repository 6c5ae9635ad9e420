"""Which number and which letter stand for an owner of blocks, the same in every panel."""

import re

from pagedchat.cache_events import FIRST_OWN_ID

GLYPHS = "123456789abcdefghijklmnopqrstuvwxyz"

BEAMS_FROM = 100
"""The number of the first sequence that is no chat's, and how many of them have numbers of their own."""
_LEADING_NUMBER = re.compile(r"\d+")


def owner_number(seq_id: int, label: str) -> int:
    """The number that people see in the label (`"2 code"` -> 2), else the sequence's own."""
    match = _LEADING_NUMBER.match(label)
    if match:
        return int(match[0])
    return seq_id if seq_id < FIRST_OWN_ID else BEAMS_FROM + (seq_id - FIRST_OWN_ID) % BEAMS_FROM


def unlabelled(seq_id: int) -> str:
    """What a sequence is called that is no chat."""
    return f"beam {seq_id - FIRST_OWN_ID + 1}" if seq_id >= FIRST_OWN_ID else f"seq {seq_id}"


def owner_glyph(number: int) -> str:
    """`1` to `9`, then `a` to `z`, then over again."""
    return GLYPHS[(number - 1) % len(GLYPHS)]
