"""Text as rows of pieces, as it was written; what is finished of a text that is being written is made once.

Knows no Markdown: what does is loaded when the first reply of that kind is drawn.
"""

from collections.abc import Sequence
from typing import NamedTuple

from pagedchat.chat.visible import VisibleText, visible
from pagedchat.view.chats.wrap import wrap
from pagedchat.view.markdown.pieces import Piece, Pieces, cut, in_source, text_of


class TextRow(NamedTuple):
    """One row; see `Row` of the transcript."""

    pieces: Pieces
    joiner: str = "\n"
    fill: str = ""
    """Style of the cells behind its text."""

    @property
    def text(self) -> str:
        """All that it draws."""
        return text_of(self.pieces)


def written_rows(drawn: VisibleText, base: int, width: int, style: str = "") -> list[TextRow]:
    """Rows of text as it was written."""
    rows: list[TextRow] = []
    at = 0
    for line in drawn.text.split("\n"):
        pieces = in_source((Piece(line, style, at, at + len(line)),), drawn, base)
        rows += wrapped(pieces, width)
        at += len(line) + 1
    return rows


def wrapped(pieces: Pieces, width: int) -> list[TextRow]:
    """Rows of one line."""
    rows: list[TextRow] = []
    at = -1  # the first row's joiner is the line end before it
    for row in wrap(text_of(pieces), width):
        at += len(row.joiner)
        rows.append(TextRow(cut(pieces, at, at + len(row.text)) if row.text else (), row.joiner))
        at += len(row.text)
    return rows


class PlainDocument:
    """Text as it was written.

    Args:
        width: cells.
        base: where the text begins in its source.
        style: of all of it.
    """

    def __init__(self, width: int, base: int = 0, style: str = "") -> None:
        self.rows: list[TextRow] = []
        self.num_done = 0
        """Rows that will stay as they are."""
        self._width, self._base, self._style = width, base, style
        self._text = ""
        self._done = 0

    def update(self, text: str, *, finished: bool) -> int:
        """The text is this now; returns the first row that is another one than before."""
        if not text.startswith(self._text):
            self._done = self.num_done = 0
        self._text = text
        first, before = self.num_done, self.rows[self.num_done :]
        del self.rows[first:]
        end = len(text.rstrip("\r\n"))
        whole = text.rfind("\n", self._done, end) + 1
        if whole > self._done:
            self._add(text[self._done : whole - 1].removesuffix("\r"))  # the line end may be of two characters
            self._done, self.num_done = whole, len(self.rows)
        if end > self._done or not self.rows:
            self._add(text[self._done : end])
        return first_difference(before, self.rows, first)

    def thought_at(self, row: int) -> int | None:
        """None: text as it was written knows no thoughts."""

    def _add(self, text: str) -> None:
        self.rows += written_rows(visible(text), self._base + self._done, self._width, self._style)


def first_difference(before: Sequence[TextRow], rows: Sequence[TextRow], first: int) -> int:
    """The first row from `first` on that is another one than `before` had there."""
    for index, row in enumerate(before, first):
        if index >= len(rows) or rows[index] != row:
            return index
    return first + len(before)
