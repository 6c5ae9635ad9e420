"""What every cell of the pool map shows at one zoom level, kept up with the mirror. Pure; knows no colours."""

from collections.abc import Callable

from pagedchat.engine.mirror import CacheMirror
from pagedchat.tui.widgets.block_cells import CellKinds, ColorMode
from pagedchat.tui.widgets.block_layout import BlockLayout

NUM_NEXT = 3
"""Blocks marked as those that will be taken next."""


class BlockPicture:
    """The kinds of all cells (see `block_cells`).

    Args:
        mirror: the cache.
        layout: which blocks a cell stands for.
        mode: what colours mean.
        owner_kind: sequence id -> kind of a block that it alone holds.
        copied: blocks to mark as just copied.
    """

    def __init__(
        self,
        mirror: CacheMirror,
        layout: BlockLayout,
        mode: ColorMode,
        owner_kind: Callable[[int], str],
        copied: set[int],
    ) -> None:
        self.mirror = mirror
        self.layout = layout
        self._kinds_of = CellKinds(mirror, mode, owner_kind)
        self._num_reports = mirror.num_reports
        self._marks = self._find_marks(copied)
        self.kinds = [self._kind(cell) for cell in range(layout.num_cells)]

    def update(self, copied: set[int]) -> set[int]:
        """Follow the mirror.

        Returns:
            The lines that look different now.
        """
        mirror, layout = self.mirror, self.layout
        if mirror.num_reports == self._num_reports:
            return set()
        seen, self._num_reports = self._num_reports, mirror.num_reports
        changed = {block_id for block_id, number in mirror.touched.items() if number > seen}
        before, self._marks = self._marks, self._find_marks(copied)
        changed.update(before.keys() ^ self._marks.keys())
        lines = set()
        for cell in {layout.cell_of(block_id) for block_id in changed}:
            kind = self._kind(cell)
            if kind != self.kinds[cell] or layout.style == "tile":  # a tile tells its ref count too
                self.kinds[cell] = kind
                lines.add(layout.line_of(cell))
        return lines

    def _find_marks(self, copied: set[int]) -> dict[int, str]:
        marks = dict.fromkeys(copied, "copied")
        if self.layout.blocks_per_cell == 1:
            marks.update(dict.fromkeys(self.mirror.next_out(NUM_NEXT), "next"))
        return marks

    def _kind(self, cell: int) -> str:
        blocks = self.layout.blocks_of(cell)
        for block_id in blocks:
            mark = self._marks.get(block_id)
            if mark is not None:
                return mark
        return self._kinds_of.block(blocks[0]) if len(blocks) == 1 else self._kinds_of.cell(blocks)
