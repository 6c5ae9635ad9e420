"""Which blocks some reports changed, read from the reports themselves. Pure.

`CacheMirror.touched` tells the same, but only to who looks at every block; here the work grows with what happened
and not with the pool.
"""

from collections.abc import Iterable

from pagedchat import events as ev
from pagedchat.engine.mirror import CacheMirror


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
