"""How many blocks a cell of the pool map stands for, and where each block is. Pure arithmetic.

Zoom levels, from the largest cells to the smallest; the map takes the first one that fits::

    tile   5 columns a block, with its id          041²
    pair   2 columns a block                       ▓▓
    cell   1 column a block                        ▓
    half   two rows of blocks in one line          ▀     and then 2, 3, 4, 6, 8, ... blocks a half cell

Without half blocks (a terminal that has only ASCII) the cells of several blocks are whole characters.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

CellStyle = Literal["tile", "pair", "cell", "half"]

_WIDTHS: dict[CellStyle, int] = {"pair": 2, "cell": 1, "half": 1}
_CHAR_STYLES: tuple[CellStyle, ...] = ("tile", "pair", "cell")
_ROUND = 8
"""Where a cell is a block, lines hold a multiple of this many: round numbers are easier to count on."""


@dataclass(frozen=True, slots=True)
class BlockLayout:
    """One zoom level of a pool in a panel."""

    style: CellStyle
    num_blocks: int
    blocks_per_cell: int
    cells_per_row: int
    """A row of cells; a `half` line has two of them."""

    @property
    def cell_width(self) -> int:
        """Columns of one cell."""
        return _width(self.style, self.num_blocks)

    @property
    def num_cells(self) -> int:
        """All cells; the last one may stand for fewer blocks."""
        return -(-self.num_blocks // self.blocks_per_cell)

    @property
    def cells_per_line(self) -> int:
        """Cells on one line of the terminal."""
        return self.cells_per_row * (2 if self.style == "half" else 1)

    @property
    def num_lines(self) -> int:
        """Lines that the whole pool takes."""
        return -(-self.num_cells // self.cells_per_line)

    def cell_of(self, block_id: int) -> int:
        """The cell that shows a block."""
        return block_id // self.blocks_per_cell

    def line_of(self, cell: int) -> int:
        """The line that shows a cell."""
        return cell // self.cells_per_line

    def blocks_of(self, cell: int) -> range:
        """The blocks that a cell stands for."""
        first = cell * self.blocks_per_cell
        return range(first, min(first + self.blocks_per_cell, self.num_blocks))

    def block_at(self, column: int, line: int) -> int | None:
        """The first block under a point of the map (in a `half` line the upper one), gutter not counted."""
        x = column // self.cell_width
        cell = line * self.cells_per_line + x
        if not 0 <= x < self.cells_per_row or not 0 <= cell < self.num_cells:
            return None
        return cell * self.blocks_per_cell


def gutter_width(num_blocks: int) -> int:
    """Columns of the block ids at the left, with the space after them."""
    return max(3, len(str(num_blocks - 1))) + 1


def zoom_levels(num_blocks: int, width: int, height: int, half_blocks: bool = True) -> list[BlockLayout]:
    """All levels of a pool in a panel, largest cells first; the last one fits the panel."""
    room = max(1, width - gutter_width(num_blocks))
    levels = [
        BlockLayout(style, num_blocks, 1, _rounded(room // _width(style, num_blocks))) for style in _CHAR_STYLES
    ]
    for blocks_per_cell in _cell_sizes(1 if half_blocks else 2):
        cells_per_row = _rounded(room) if blocks_per_cell == 1 else room
        level = BlockLayout("half" if half_blocks else "cell", num_blocks, blocks_per_cell, cells_per_row)
        levels.append(level)
        if level.num_lines <= max(1, height):
            break
    return levels


def fitting_level(levels: list[BlockLayout], height: int) -> int:
    """Index of the first level that needs no scrolling."""
    return next((i for i, level in enumerate(levels) if level.num_lines <= height), len(levels) - 1)


def _cell_sizes(first: int) -> Iterator[int]:
    """1, 2, 3, 4, 6, 8, 12, 16, 24, ..., or the same without 1."""
    if first == 1:
        yield 1
    size = 2
    while True:
        yield size
        yield size * 3 // 2
        size *= 2


def _width(style: CellStyle, num_blocks: int) -> int:
    """A tile is the id, a sign and a space."""
    return gutter_width(num_blocks) + 1 if style == "tile" else _WIDTHS[style]


def _rounded(cells: int) -> int:
    return cells // _ROUND * _ROUND or max(1, cells)
