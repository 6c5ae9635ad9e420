"""The kind of every block of the pool, a byte each, kept up with the mirror. Pure.

Bytes, because cells of many blocks are counted from them by the hundred thousand, and a slice of a `bytearray` is
counted at the speed of C. A refresh only writes the bytes of the blocks that changed.
"""

from collections import Counter, deque
from collections.abc import Callable, Iterable
from itertools import chain, islice

from pagedchat.engine.mirror import CacheMirror
from pagedchat.events import StepReport
from pagedchat.view.blocks.changes import BlockAges, changed_blocks
from pagedchat.view.blocks.kinds import CODES, IDLE, KINDS, CellKinds, ColorMode

SHARES = 4
"""Steps in which a cell of several blocks tells how many of them are taken."""


class BlockKinds:
    """Kinds of all blocks in one mode.

    Args:
        mirror: the cache.
        mode: what colours mean.
        owner_kind: sequence id -> the kind of a block that it alone holds.
    """

    def __init__(self, mirror: CacheMirror, mode: ColorMode, owner_kind: Callable[[int], str]) -> None:
        self.mirror = mirror
        self._mode = mode
        self._kinds = CellKinds(mirror, mode, owner_kind)
        self._ages: BlockAges | None = None
        self._num_reports = mirror.num_reports
        self._write_all()

    def update(self, history: deque[StepReport]) -> set[int] | None:
        """Follow the mirror.

        Args:
            history: the last reports that the mirror has folded in.

        Returns:
            The blocks whose kind may be another one; None, for any of them, if the history does not reach back far
            enough.
        """
        since, self._num_reports = self._num_reports, self.mirror.num_reports
        num_new = self._num_reports - since
        if num_new > len(history):
            self._write_all()
            return None
        changed = changed_blocks(self.mirror, islice(reversed(history), num_new), since)
        if self._ages is not None and num_new:
            changed |= self._ages.advance(changed)
        self._write(changed)
        return changed

    def kind(self, block_id: int) -> str:
        """Kind of one block."""
        return KINDS[self._codes[block_id]]

    def count(self, kind: str) -> int:
        """How many blocks are of a kind."""
        return self._counts[CODES[kind]]

    def cell(self, blocks: range) -> tuple[str, int]:
        """Several blocks as one: the kind that stands for them, and how many of `SHARES` parts of them are taken.

        Blocks in use outweigh those that nobody holds, however few they are; among them the most frequent kind
        stands for all, of equal ones the first. Without any, it is the kind that is furthest from being free.
        """
        codes = self._codes[blocks.start : blocks.stop]
        if codes.count(codes[0]) == len(codes):  # one kind only, as is mostly the case: quicker than counting all
            kind = KINDS[codes[0]]
            return kind, 0 if kind in ("free", "withheld") else SHARES
        counts = Counter(codes)
        idle = {kind: counts.pop(CODES[kind], 0) for kind in IDLE}
        taken = len(blocks) - idle["free"] - idle["withheld"]
        if counts:
            kind = KINDS[counts.most_common(1)[0][0]]
        else:
            kind = next((kind for kind in reversed(IDLE) if idle[kind]), IDLE[0])
        return kind, -(-SHARES * taken // len(blocks))

    def _write_all(self) -> None:
        mirror = self.mirror
        self._codes = bytearray(mirror.num_blocks)
        self._counts = [mirror.num_blocks] + [0] * (len(KINDS) - 1)
        self._ages = BlockAges(mirror) if self._mode == "age" else None
        tables = (sequence.block_table for sequence in mirror.sequences.values())
        self._write(chain(mirror.cached_blocks, mirror.pinned, mirror.withheld, *tables))

    def _write(self, block_ids: Iterable[int]) -> None:
        codes, counts, kind_of = self._codes, self._counts, self._kinds.block
        for block_id in block_ids:
            code = CODES[kind_of(block_id)]
            counts[codes[block_id]] -= 1
            counts[code] += 1
            codes[block_id] = code
