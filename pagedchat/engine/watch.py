"""The engine's books held against each other while it works, a little at every step.

`integrity.check_integrity` looks at everything and takes its time. The watch does a bounded amount of work a step,
whatever the size of pool and batch: the running totals, a few of the blocks that the step wrote to, and the next
piece of a round. A round has two halves:

1. *Recount*: the block tables are counted, a piece of one sequence's table at a time.
2. *Compare*: the counts are held against the ref counts, a few blocks at a time, and each block against the lists.

Blocks change hands while a round goes on. Those that do are left out of its comparison (the pool names them), and
the next round has them. So there are no false alarms, and what is wrong and stays wrong is found within two rounds.

The watch only reads. What is to be done about a violation is for others to decide.
"""

from collections import Counter
from collections.abc import Sequence as Items
from itertools import repeat

from pagedchat.engine.block_manager import BlockManager
from pagedchat.engine.block_pool import BlockPool
from pagedchat.engine.output import ScheduledSequence
from pagedchat.engine.sequence import Sequence
from pagedchat.errors import IntegrityError

ENTRIES_PER_STEP = 32
"""Block table entries counted in a step of the first half."""
BLOCKS_PER_STEP = 24
"""Blocks compared in a step of the second half."""
WRITES_PER_STEP = 8
"""Sequences of the batch whose last written block is looked at."""


class Watch:
    """Checks one engine as it goes.

    Args:
        blocks: the books.
        sequences: all sequences by id; it is read at the beginning of each round.
    """

    def __init__(self, blocks: BlockManager, sequences: dict[int, Sequence]) -> None:
        self._block_size, self._pool = blocks.block_size, blocks.pool
        self._findable = blocks.cache.block_ids
        self._sequences = sequences
        self.violation: str | None = None
        """What is wrong, once something is; from then on nothing is checked."""
        self.num_rounds = 0
        """Rounds that were finished."""
        self._turn = 0
        self._begin_round()

    def check(self, batch: Items[ScheduledSequence]) -> None:
        """To be called after every step, before anything else changes."""
        if self.violation is not None:
            return
        try:
            check_totals(self._pool)
            self._check_writes(batch)
            self._go_on()
        except IntegrityError as error:
            self.violation = str(error)

    # --- what the step wrote to ---------------------------------------------------------------------

    def _check_writes(self, batch: Items[ScheduledSequence]) -> None:
        """The next few of the batch: each has for itself the block to which it wrote last."""
        if not batch:  # where every part of it failed
            return
        start = self._turn % len(batch)
        self._turn = start + WRITES_PER_STEP
        size, ref_counts, findable = self._block_size, self._pool.ref_counts, self._findable
        for item in batch[start : start + WRITES_PER_STEP]:
            end = item.start + item.num_tokens
            block_id = item.sequence.block_table[(end - 1) // size]
            if ref_counts[block_id] != 1 or (end % size and block_id in findable):
                raise IntegrityError(
                    f"sequence {item.sequence.seq_id} wrote to block {block_id}, which has ref count "
                    f"{ref_counts[block_id]} and {'a' if block_id in findable else 'no'} hash"
                )

    # --- the round ----------------------------------------------------------------------------------

    def _begin_round(self) -> None:
        self._pool.changed.clear()
        self._to_count = list(self._sequences.values())
        self._entry = 0
        """Where to go on in the table of the last sequence of `_to_count`."""
        self._counts: Counter[int] = Counter()
        self._next_block = 0

    def _go_on(self) -> None:
        if self._to_count:
            self._count_entries(self._to_count[-1].block_table)
            return
        end = min(self._next_block + BLOCKS_PER_STEP, self._pool.num_blocks)
        self._compare(range(self._next_block, end))
        self._next_block = end
        if end == self._pool.num_blocks:
            self.num_rounds += 1
            self._begin_round()

    def _count_entries(self, table: list[int]) -> None:
        """Tables change at their ends, or where the pool names the block: a table may be counted in pieces."""
        end = self._entry + ENTRIES_PER_STEP
        self._counts.update(table[self._entry : end])
        self._entry = end
        if end >= len(table):
            self._to_count.pop()
            self._entry = 0

    def _compare(self, block_ids: range) -> None:
        pool = self._pool
        counts = pool.ref_counts[block_ids.start : block_ids.stop]
        entries = list(map(self._counts.get, block_ids, repeat(0)))
        if counts != entries:
            self._check_counts(block_ids, counts, entries)
        listed = (pool.cached_blocks.keys(), pool.pinned.keys(), self._findable)
        if all(blocks.isdisjoint(block_ids) for blocks in listed):
            return  # as are most blocks of a large pool
        idle = {block_id for block_id, count in zip(block_ids, counts, strict=True) if not count}
        kept = (pool.cached_blocks.keys() & block_ids) | (pool.pinned.keys() & idle)
        if kept != self._findable & idle:
            raise IntegrityError(
                f"blocks {sorted(kept)} are cached, but of {sorted(idle)}, which nobody holds, "
                f"{sorted(self._findable & idle)} can be found"
            )

    def _check_counts(self, block_ids: range, counts: list[int], entries: list[int]) -> None:
        for block_id, count, counted in zip(block_ids, counts, entries, strict=True):
            if count != counted and block_id not in self._pool.changed:
                raise IntegrityError(
                    f"block {block_id} has ref count {count}, but {counted} entries in block tables"
                )


def check_totals(pool: BlockPool) -> None:
    """Every block is in some state, as far as the sizes of the lists tell; cheap enough for every step.

    Raises:
        IntegrityError: with the numbers that disagree.
    """
    free, withheld = len(pool.free_blocks), len(pool.withheld)
    cached = len(pool.cached_blocks) + pool.num_idle_pinned
    if free + cached + withheld + pool.num_in_use != pool.num_blocks:
        raise IntegrityError(
            f"{pool.num_blocks} blocks, but {free} free, {cached} cached, {withheld} withheld "
            f"and {pool.num_in_use} in use"
        )
