"""Which number and which letter stand for an owner of blocks, the same in every panel."""

import re

GLYPHS = "123456789abcdefghijklmnopqrstuvwxyz"

_LEADING_NUMBER = re.compile(r"\d+")


def owner_number(seq_id: int, label: str) -> int:
    """The number that people see in the label (`"2 code"` -> 2), else the sequence's own."""
    match = _LEADING_NUMBER.match(label)
    return int(match[0]) if match else seq_id


def owner_glyph(number: int) -> str:
    """`1` to `9`, then `a` to `z`, then over again."""
    return GLYPHS[(number - 1) % len(GLYPHS)]
