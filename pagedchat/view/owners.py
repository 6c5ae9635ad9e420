"""Which name, number and letter stand for an owner of blocks, the same in every panel."""

import re

from pagedchat.cache_events import ANOTHERS, CHILDREN, FIRST_OF_PROGRAMS

GLYPHS = "123456789abcdefghijklmnopqrstuvwxyz"

ANOTHERS_GLYPH = "~"
"""Of all sequences of other clients."""
ALL_GLYPHS = GLYPHS + ANOTHERS_GLYPH

_LEADING_NUMBER = re.compile(r"\d+")


def unlabelled(seq_id: int, *, is_beam: bool = False) -> str:
    """What a sequence is called to which nobody gave a name: `seq 3`, `request 10` of a program, `beam 10`."""
    if seq_id >= ANOTHERS:
        return "another client"
    kind = "beam" if is_beam else "seq" if seq_id < FIRST_OF_PROGRAMS else "request"
    return f"{kind} {_own_number(seq_id)}"


def owner_number(seq_id: int, label: str) -> int:
    """The number that people see in the label (`"2 code"` -> 2), else the sequence's own."""
    match = _LEADING_NUMBER.match(label)
    return int(match[0]) if match else _own_number(seq_id)


def _own_number(seq_id: int) -> int:
    """Of programs from 10 on, so that none has the letter and the colour of a chat that stands beside it."""
    of_a_program = FIRST_OF_PROGRAMS <= seq_id < ANOTHERS
    return seq_id % CHILDREN - FIRST_OF_PROGRAMS + 10 if of_a_program else seq_id


def shown_number(number: int) -> str:
    """An owner's number as panels write it; other clients have none that would mean anything."""
    return ANOTHERS_GLYPH if number >= ANOTHERS else str(number)


def owner_glyph(number: int) -> str:
    """`1` to `9`, then `a` to `z`, then over again; one sign for all of other clients."""
    if number >= ANOTHERS:
        return ANOTHERS_GLYPH
    return GLYPHS[(number - 1) % len(GLYPHS)]
