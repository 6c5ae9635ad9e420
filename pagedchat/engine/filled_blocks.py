"""Full blocks on their way into the prefix cache, a few in each step.

Many sequences that began together fill a block in the same step. Hashing all of those at once would make that step
several times as long as those around it, while a GPU waits.
"""

from collections import deque

from pagedchat.engine.block_manager import BlockManager
from pagedchat.engine.sequence import Sequence

PER_STEP = 16
"""Sequences whose blocks become findable in one step; more where very many wait."""


class FilledBlocks:
    """Sequences with a full block that is not findable yet, the oldest first.

    Args:
        blocks: makes them findable.
    """

    def __init__(self, blocks: BlockManager) -> None:
        self._blocks = blocks
        self._waiting: deque[Sequence] = deque()
        self.add = self._waiting.extend
        """Take sequences that have filled a block."""

    def cache_some(self) -> None:
        """What a step does."""
        num_waiting = len(self._waiting)
        self._cache(min(max(PER_STEP, num_waiting // PER_STEP), num_waiting))

    def cache_all(self) -> None:
        """For somebody who wants to find all there is."""
        self._cache(len(self._waiting))

    def cache_of(self, seq: Sequence) -> None:
        """All blocks of one sequence; one that has lost them gets there when it has them again."""
        if seq.block_table:
            self._blocks.cache_full_blocks(seq)

    def _cache(self, count: int) -> None:
        for _ in range(count):
            self.cache_of(self._waiting.popleft())
