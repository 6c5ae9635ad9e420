"""A table as rows: columns as wide as their text, or as the width allows, with lines between them."""

from collections.abc import Sequence
from typing import NamedTuple

from rich.cells import cell_len

from pagedchat.view.chats.wrap import wrap
from pagedchat.view.markdown.pieces import COLUMN, FRAME, PAD, Piece, Pieces, cut, text_of

_BETWEEN = 3
"""Cells from one column to the next."""
_LEAST = 3
"""Cells of a column; with less there are rows of cells below one another."""


class Cell(NamedTuple):
    """What stands in it, on one line."""

    pieces: Pieces


class Table(NamedTuple):
    """Rows of cells, the first of them the heads of the columns."""

    rows: list[list[Cell]]
    sides: list[str]
    """For each column `left`, `right`, `center` or nothing."""


def table_rows(table: Table, rule: Piece, width: int) -> list[Pieces]:
    """The rows drawn; `rule` stands for what the source has between the heads and the rest."""
    num_columns = len(table.sides)
    widths = column_widths(table, width - _BETWEEN * (num_columns - 1))
    if not widths:
        return _stacked(table, width)
    drawn: list[Pieces] = []
    for number, row in enumerate(table.rows):
        drawn += _row(row, widths, table.sides, "strong" if number == 0 else "")
        if number == 0:
            line = "─┼─".join("─" * column for column in widths)
            drawn.append((rule._replace(text=line),))
    return drawn


def column_widths(table: Table, room: int) -> list[int]:
    """Cells of each column: all get what they need up to an equal share; empty if that is too little."""
    wanted = [
        max(1, *(cell_len(text_of(row[column].pieces)) for row in table.rows if column < len(row)), 1)
        for column in range(len(table.sides))
    ]
    widths = [0] * len(wanted)
    open_columns = sorted(range(len(wanted)), key=lambda column: wanted[column])
    for place, column in enumerate(open_columns):
        share = room // (len(open_columns) - place)
        widths[column] = min(wanted[column], share)
        room -= widths[column]
    fits = all(width >= min(_LEAST, want) for width, want in zip(widths, wanted, strict=True))
    return widths if fits else []


def _row(row: Sequence[Cell], widths: Sequence[int], sides: Sequence[str], style: str) -> list[Pieces]:
    """As many rows as the cell with the most lines has."""
    columns = [
        _cell_lines(row[column].pieces if column < len(row) else (), width, style)
        for column, width in enumerate(widths)
    ]
    drawn: list[Pieces] = []
    for number in range(max(map(len, columns))):
        pieces: list[Piece] = []
        for column, (lines, width) in enumerate(zip(columns, widths, strict=True)):
            if column:
                pieces.append(Piece(" │ ", COLUMN))
            line = lines[number] if number < len(lines) else ()
            spare = width - cell_len(text_of(line))
            before = {"right": spare, "center": spare // 2}.get(sides[column], 0)
            last = column == len(widths) - 1
            pieces += [
                *_blank(before), *line, *([] if last else _blank(spare - before))
            ]  # fmt: skip
        drawn.append(tuple(pieces))
    return drawn


def _blank(cells: int) -> list[Piece]:
    return [Piece(" " * cells, PAD)] if cells > 0 else []


def _cell_lines(pieces: Pieces, width: int, style: str) -> list[Pieces]:
    if style:
        pieces = tuple(piece._replace(style=f"{style} {piece.style}".strip()) for piece in pieces)
    lines: list[Pieces] = []
    at = -1
    for row in wrap(text_of(pieces), width):
        at += len(row.joiner)
        lines.append(cut(pieces, at, at + len(row.text)) if row.text else ())
        at += len(row.text)
    return lines


def _stacked(table: Table, width: int) -> list[Pieces]:
    """Cells below one another, the rows of the table apart."""
    drawn: list[Pieces] = []
    for number, row in enumerate(table.rows):
        for cell in row:
            drawn += _cell_lines(cell.pieces, width, "strong" if number == 0 else "")
        drawn.append((Piece("─" * min(width, _LEAST), FRAME),))
    return drawn
