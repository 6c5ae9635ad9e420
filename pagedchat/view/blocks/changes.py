"""Which blocks look different after some reports: those that the reports changed, and those that aged. Pure.

`CacheMirror.touched` tells what changed too, but only to who looks at every block; here the work grows with what
happened and not with the pool. Nothing happens to a block that ages, so no report names it: blocks wait in one
queue for each limit of age, in the order of their last change, and a look at the heads of the queues finds those
that are due.
"""

from collections import deque
from collections.abc import Iterable
from operator import itemgetter

from pagedchat import events as ev
from pagedchat.engine.mirror import CacheMirror
from pagedchat.view.blocks.kinds import AGE_LIMITS, age_class


def changed_blocks(mirror: CacheMirror, reports: Iterable[ev.StepReport], since: int) -> set[int]:
    """The blocks that the reports changed or wrote into.

    Args:
        mirror: the cache after the last of the reports.
        reports: all of those after report number `since`, in any order.
        since: number of the report before them.
    """
    changed: set[int] = set()
    ends: set[int] = set()
    """Sequences that may have got tokens, or lost some."""
    for report in reports:
        ends.update(entry.seq_id for entry in report.batch)
        for event in report.events:
            match event:
                case ev.SequenceExtended() | ev.SequenceRewound():
                    ends.add(event.seq_id)
                case _:
                    changed.update(_named(event, mirror))
    for seq_id in ends:
        changed.update(_written(mirror, seq_id, since))
    return changed


def _named(event: ev.CacheEvent, mirror: CacheMirror) -> Iterable[int]:
    """The blocks that an event is about."""
    match event:
        case (
            ev.BlockAllocated() | ev.BlockEvicted() | ev.BlockCached() | ev.BlockUncached() | ev.BlockPinned()
            | ev.BlockUnpinned()
        ):  # fmt: skip
            return (event.block_id,)
        case (
            ev.PrefixHit() | ev.BlocksFreed() | ev.BlocksWithheld() | ev.BlocksReturned() | ev.SwappedOut()
            | ev.SwappedIn()
        ):  # fmt: skip
            return event.block_ids
        case ev.BlockCopied():
            return event.src, event.dst
        case ev.SequenceForked():
            # What the child has lost since then, another event names.
            child = mirror.sequences.get(event.child_id)
            return child.block_table if child else ()
    return ()


def _written(mirror: CacheMirror, seq_id: int, since: int) -> Iterable[int]:
    """The blocks around the end of what is computed: those written into since then stand in one run before it."""
    sequence = mirror.sequences.get(seq_id)
    if sequence is None:
        return
    table, end = sequence.block_table, sequence.num_computed // mirror.block_size
    if end < len(table):
        yield table[end]
    index = min(sequence.num_computed - 1, len(table) * mirror.block_size - 1) // mirror.block_size
    while index >= 0 and mirror.touched.get(table[index], 0) > since:
        yield table[index]
        index -= 1


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
