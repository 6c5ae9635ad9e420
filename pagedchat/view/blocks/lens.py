"""Which lines of the pool map are shown: all of them, or those around the blocks that are in use. Pure arithmetic.

A pool of many thousand blocks, of which a few are in use, would be a map of one cell or two. So lines in which
nothing is in use may be left out, and cells are as large as the panel allows.
"""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from pagedchat.view.blocks.map_layout import BlockLayout


class Lens:
    """Lines of a layout from top to bottom.

    Args:
        lines: the lines of the map that are shown, in order.
        num_lines: all that there are.
    """

    def __init__(self, lines: Sequence[int], num_lines: int) -> None:
        self.lines = lines
        self.hides_some = len(lines) < num_lines
        self._rows = {line: row for row, line in enumerate(lines)} if self.hides_some else None

    def __len__(self) -> int:
        return len(self.lines)

    def row_of(self, line: int) -> int | None:
        """Where a line of the map is shown; None if it is not."""
        return line if self._rows is None else self._rows.get(line)

    def rows_of(self, lines: Iterable[int]) -> list[int]:
        """Where those of these lines are shown that are."""
        return [row for line in lines if (row := self.row_of(line)) is not None]

    def skips_before(self, row: int) -> bool:
        """Whether lines are left out above this row."""
        return self.lines[row] != (self.lines[row - 1] + 1 if row else 0)

    def beyond(self, line: int, direction: int) -> int | None:
        """The nearest line shown that comes after (1) or before (-1) a line; None at the end."""
        found = [shown for shown in self.lines if (shown - line) * direction > 0]
        return (min(found) if direction > 0 else max(found)) if found else None


class View(NamedTuple):
    """A zoom level by its index, and what is shown of it."""

    level: int
    lens: Lens


def whole(layout: BlockLayout) -> Lens:
    """All of the map."""
    return Lens(range(layout.num_lines), layout.num_lines)


def lens_on(levels: Sequence[BlockLayout], blocks: Iterable[int], height: int) -> View:
    """The largest cells at which all lines with these blocks have room, and what is beside them."""
    wanted, room = list(blocks), max(1, height)
    for index, level in enumerate(levels):
        needed = {level.line_of(level.cell_of(block_id)) for block_id in wanted}
        if len(needed) <= room:
            return View(index, Lens(_with_neighbours(needed, level.num_lines, room), level.num_lines))
    return View(len(levels) - 1, whole(levels[-1]))


def _with_neighbours(needed: set[int], num_lines: int, room: int) -> list[int]:
    """As many lines as there is room for: the needed ones, then those nearest to them, below before above."""
    lines, edge = set(needed) or {0}, sorted(needed) or [0]
    distance = 0
    while len(lines) < min(room, num_lines):
        distance += 1
        for line in (near for start in edge for near in (start + distance, start - distance)):
            if 0 <= line < num_lines and len(lines) < room:
                lines.add(line)
    return sorted(lines)
