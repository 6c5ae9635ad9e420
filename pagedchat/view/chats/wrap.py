"""Breaks plain text into rows of terminal cells. Input is sanitised text; widths are those Textual draws with."""

import re
from collections.abc import Iterator
from functools import cache, lru_cache
from typing import NamedTuple

from rich.cells import cell_len, chop_cells


class WrappedRow(NamedTuple):
    """One row, and what stood between it and the row before in the text."""

    text: str
    joiner: str
    """A line end, or the spaces that the wrap swallowed; so the rows joined by it are the text again."""


# A chunk is a word with the spaces behind it; ideographs and kana are chunks of their own, since lines may end
# after any of them.
_CHUNK = re.compile(r"(?P<word>\S*)(?P<space>\s*)")
_FIRST_IDEOGRAPH = chr(0x2E80)


@cache
def _chunk_with_ideographs() -> re.Pattern[str]:
    """Some milliseconds to compile, for text that has such."""
    return re.compile(
        r"(?P<word>[\u2e80-\u9fff\uac00-\ud7af\uf900-\ufaff\uff00-\uffef]"
        r"|[^\s\u2e80-\u9fff\uac00-\ud7af\uf900-\ufaff\uff00-\uffef]+|)(?P<space>\s*)"
    )


def wrap(text: str, width: int) -> list[WrappedRow]:
    """Rows at most `width` cells wide; words stay whole where they fit into a row."""
    *finished, last = text.split("\n")
    rows: list[WrappedRow] = []
    for line in finished:
        rows += _finished_line(line, max(2, width))
    return rows + _line_rows(last, max(2, width))


def _line_rows(line: str, width: int) -> list[WrappedRow]:
    first, *others = _wrap_line(line, width)
    return [first._replace(joiner="\n" + first.joiner), *others]


@lru_cache(1024)
def _finished_line(line: str, width: int) -> list[WrappedRow]:
    """The same of a line to which nothing will be added: a reply being written is wrapped again and again."""
    return _line_rows(line, width)


def _wrap_line(line: str, width: int) -> Iterator[WrappedRow]:
    """Rows of one line of text; each joiner is what was swallowed before the row."""
    if cell_len(line) <= width:
        yield WrappedRow(line, "")
        return
    row, swallowed, spaces = "", "", ""
    chunk = _CHUNK if max(line) < _FIRST_IDEOGRAPH else _chunk_with_ideographs()
    for match in chunk.finditer(line):
        word = match["word"]
        for piece in chop_cells(word, width) if cell_len(word) > width else [word]:
            longer = row + spaces + piece
            if cell_len(longer) <= width:
                row = longer
            elif not row:
                row, swallowed = piece, swallowed + spaces  # an indentation for which there is no room
            else:
                marks = "" if spaces else _marks(piece)
                yield WrappedRow(row + marks, swallowed)
                row, swallowed = piece[len(marks) :], spaces
            spaces = ""
        spaces = match["space"]
    yield WrappedRow(row, swallowed)


def chopped(line: str, width: int) -> Iterator[str]:
    """A line in pieces of at most `width` cells, with every space where it is: for code."""
    if cell_len(line) <= width:
        yield line
        return
    row = ""
    for piece in chop_cells(line, width):
        marks = _marks(piece) if row else ""
        if row:
            yield row + marks
        row = piece[len(marks) :]
    if row:
        yield row


def _marks(piece: str) -> str:
    """What belongs to the character before: an accent never begins a row."""
    length = next((index for index, char in enumerate(piece) if cell_len(char)), len(piece))
    return piece[:length]
