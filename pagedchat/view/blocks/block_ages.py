"""Tells which blocks have just become older by a class of age. Pure.

Nothing happens to a block that ages, so no report names it. Blocks wait in one queue for each limit, in the order
of their last change; a look at the heads of the queues finds those that are due.
"""

from collections import deque
from collections.abc import Iterable
from operator import itemgetter

from pagedchat.engine.mirror import CacheMirror
from pagedchat.view.blocks.block_cells import AGE_LIMITS, age_class


class BlockAges:
    """Follows a mirror; `advance` is to be called with what changed, whenever reports have been folded in."""

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
