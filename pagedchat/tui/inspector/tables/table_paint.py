"""Draws the rows of the block tables, and tells which entry stands under a column."""

from collections.abc import Callable, Iterator

from rich.segment import Segment
from rich.style import Style
from textual.strip import Strip

from pagedchat.view.blocks.table_rows import ID_WIDTH, INDENT, BlockRow, Entry, Row
from pagedchat.view.sentences.words import fit, short_label, to_ascii

_STATUS = {"waiting": "◦", "running": "●", "swapped": "↓", "parked": "○"}
_ASCII_STATUS = {"waiting": "w", "running": "r", "swapped": "s", "parked": "-"}
STATUS_CELLS = 3


class TablePaint:
    """For one set of colours.

    Args:
        style: name of a style -> the style.
        owner: a chat's number -> the style of its name.
        label_width: cells for the names.
        ascii_only: whether nothing but ASCII is to be drawn.
    """

    def __init__(
        self,
        style: Callable[[str], Style],
        owner: Callable[[int], Style],
        label_width: int,
        *,
        ascii_only: bool,
    ) -> None:
        self._style = style
        self._owner = owner
        self._label_width = label_width
        self._ascii_only = ascii_only
        self._status = _ASCII_STATUS if ascii_only else _STATUS

    def sequence(self, row: Row) -> Strip:
        """Name, status, ids, fill."""
        return Strip(
            [
                Segment(self._label(row.name), self._owner(row.number)),
                Segment(f" {self._status[row.status]} ", self._style(row.status)),
                *self._entries(row),
                Segment(f" {row.fill}", self._style("dim")),
            ]
        )

    def block(self, row: BlockRow) -> Strip:
        """Id, fill, ref count, text."""
        entry = row.entry
        return Strip(
            [
                Segment(" " * INDENT),
                Segment(entry.text, self._entry_style(entry, chosen=row.chosen)),
                Segment(" " * max(0, ID_WIDTH - len(entry.text)) + row.figures, self._style("dim")),
                Segment(row.text, self._style("marked" if entry.marked else "text")),
            ]
        )

    def entry_at(self, row: Row, column: int) -> int:
        """Place in the block table of the entry under this column; -1 where there is none."""
        column -= self._label_width + STATUS_CELLS
        for entry in row.entries:
            if 0 <= column < len(entry.text):
                return entry.place
            column -= len(entry.text) + 1
        return -1

    def _label(self, name: str) -> str:
        label = fit(short_label(name, self._label_width), self._label_width)
        return to_ascii(label) if self._ascii_only else label

    def _entries(self, row: Row) -> Iterator[Segment]:
        if row.summary:
            yield Segment(row.summary, self._style("dim"))
        for place, entry in enumerate(row.entries):
            if place:
                yield Segment(" ")
            yield Segment(entry.text, self._entry_style(entry, chosen=0 <= entry.place == row.chosen))

    def _entry_style(self, entry: Entry, *, chosen: bool) -> Style:
        if chosen:
            return self._style("cursor")
        return self._style("marked" if entry.marked else entry.kind)
