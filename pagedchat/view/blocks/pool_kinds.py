"""The kind of every block of the pool, a byte each, kept up with the mirror. Pure.

Bytes, because cells of many blocks are counted from them by the hundred thousand, and a slice of a `bytearray` is
counted at the speed of C. A refresh only writes the bytes of the blocks that changed.
"""

from collections import Counter, deque
from collections.abc import Callable, Iterable
from itertools import chain
from operator import itemgetter

from pagedchat.engine.mirror import CacheMirror
from pagedchat.view.blocks.kinds import AGE_LIMITS, CODES, IDLE, KINDS, CellKinds, ColorMode, age_class

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

    def update(self) -> set[int]:
        """Follow the mirror.

        Returns:
            The blocks whose kind may be another one.
        """
        since, self._num_reports = self._num_reports, self.mirror.num_reports
        changed = self.mirror.changed_since(since)
        if self._ages is not None and self._num_reports > since:
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


class BlockAges:
    """Tells which blocks have just become older by a class of age.

    Nothing happens to a block that ages, so no report names it. Blocks wait in one queue for each limit, in the
    order of their last change; a look at the heads of the queues finds those that are due. `advance` is to be
    called with what changed, whenever reports have been folded in.
    """

    def __init__(self, mirror: CacheMirror) -> None:
        self._mirror = mirror
        self._queues = [deque[tuple[int, int]]() for _ in AGE_LIMITS]
        """For each limit (block, report that changed it last), oldest first; some have changed again since."""
        now = mirror.num_reports
        young = ((block_id, number) for block_id, number in mirror.touched.items() if now - number < AGE_LIMITS[-1])
        for block_id, number in sorted(young, key=itemgetter(1)):
            self._queues[age_class(now - number)].append((block_id, number))

    def advance(self, changed: Iterable[int]) -> set[int]:
        """Blocks that came into another class of age without being changed."""
        touched, now = self._mirror.touched, self._mirror.num_reports
        entries = ((block_id, touched[block_id]) for block_id in changed if block_id in touched)
        self._queues[0].extend(sorted(entries, key=itemgetter(1)))
        older: set[int] = set()
        for index, limit in enumerate(AGE_LIMITS):
            due = self._take_due(self._queues[index], now - limit)
            older.update(block_id for block_id, _ in due)
            if index + 1 < len(AGE_LIMITS):
                self._queues[index + 1].extend(due)
        return older

    def _take_due(self, queue: deque[tuple[int, int]], newest: int) -> list[tuple[int, int]]:
        due = []
        while queue and queue[0][1] <= newest:
            block_id, number = queue.popleft()
            if self._mirror.touched[block_id] == number:
                due.append((block_id, number))
        return due
