"""What every cell of the pool map shows at one zoom level, kept up with the mirror. Pure; knows no colours.

Cells are looked at when they are drawn first; from then on `update` says on which lines one of those looks
different. So cells that were never in sight cost nothing.
"""

from collections.abc import Iterable
from collections.abc import Set as AbstractSet
from typing import NamedTuple

from pagedchat.view.blocks.kinds import IDLE
from pagedchat.view.blocks.map_layout import BlockLayout
from pagedchat.view.blocks.pool_kinds import SHARES, BlockKinds

NUM_NEXT = 3
"""Blocks marked as those that will be taken next."""


class Look(NamedTuple):
    """What a cell shows."""

    kind: str
    """See `kinds`."""
    mark: str = ""
    """`pinned`, `next`, `copied` or nothing: the most urgent one of the cell's blocks."""
    lit: bool = False
    """Whether one of the blocks belongs to what the user has selected."""
    share: int = SHARES
    """How many quarters of the cell's blocks are taken, rounded up."""


class BlockPicture:
    """The looks of all cells.

    Args:
        kinds: the blocks, in some mode.
        layout: which blocks a cell stands for.
        copied: blocks to mark as just copied.
        lit: blocks of what is selected.
    """

    def __init__(
        self, kinds: BlockKinds, layout: BlockLayout, copied: AbstractSet[int], lit: AbstractSet[int]
    ) -> None:
        self.kinds = kinds
        self.mirror = kinds.mirror
        self.layout = layout
        self._marks = self._find_marks(copied)
        self._lit = self._cells_of(lit)
        self.changed: set[int] = set()
        """Blocks that were looked at anew by the last update."""
        self._looks: dict[int, Look] = {}
        """Cells that have been looked at."""

    def look(self, cell: int) -> Look:
        """What a cell shows now."""
        look = self._looks.get(cell)
        if look is None:
            look = self._looks[cell] = self._find_look(cell)
        return look

    def update(self, copied: AbstractSet[int], lit: AbstractSet[int]) -> set[int]:
        """Follow the mirror.

        Returns:
            The lines that look different now.
        """
        blocks = self.changed = self.kinds.update()
        marks, self._marks = self._marks, self._find_marks(copied)
        lit_before, self._lit = self._lit, self._cells_of(lit)
        cells = self._cells_of(blocks) | (lit_before ^ self._lit)
        cells.update(cell for cell, _ in marks.items() ^ self._marks.items())
        return {self.layout.line_of(cell) for cell in cells if self._differs(cell)}

    @property
    def marks(self) -> set[str]:
        """The marks that are somewhere on the map."""
        return set(self._marks.values())

    def _differs(self, cell: int) -> bool:
        """Look at a cell again, if it was looked at before."""
        before = self._looks.pop(cell, None)
        # A tile tells its ref count too.
        return before is not None and (self.look(cell) != before or self.layout.style == "tile")

    def _cells_of(self, blocks: Iterable[int]) -> set[int]:
        return {self.layout.cell_of(block_id) for block_id in blocks}

    def _find_marks(self, copied: Iterable[int]) -> dict[int, str]:
        """Cells that are marked; what is more urgent comes later and wins."""
        marks = dict.fromkeys(self._cells_of(self.mirror.pinned), "pinned")
        marks.update(dict.fromkeys(self._cells_of(self.mirror.next_out(NUM_NEXT)), "next"))
        marks.update(dict.fromkeys(self._cells_of(copied), "copied"))
        return marks

    def _find_look(self, cell: int) -> Look:
        blocks, mark, lit = self.layout.blocks_of(cell), self._marks.get(cell, ""), cell in self._lit
        look = look_of(self.kinds, blocks)
        if mark == "next" and len(blocks) > 1 and look.kind not in IDLE:  # what is in use counts for more
            mark = ""
        return look._replace(mark=mark, lit=lit)


def look_of(kinds: BlockKinds, blocks: range) -> Look:
    """What a cell of these blocks shows, without marks."""
    if len(blocks) == 1:
        return Look(kinds.kind(blocks.start))
    kind, share = kinds.cell(blocks)
    return Look(kind, share=share)
