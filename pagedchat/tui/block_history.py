"""What happened to one block, read backwards from the reports that are kept. Pure."""

from collections.abc import Callable, Iterable
from typing import NamedTuple

from pagedchat import events as ev
from pagedchat.engine.mirror import CacheMirror


class Moment(NamedTuple):
    """One thing that happened to the block."""

    step: int
    text: str


def block_history(
    block_id: int,
    mirror: CacheMirror,
    reports: Iterable[ev.StepReport],
    name: Callable[[int], str],
    limit: int,
) -> list[Moment]:
    """The last moments, newest first.

    Forks do not name the blocks they share. Who held the block at the time follows from who holds it now, every
    event undone on the way back, so this is exact however far back the reports go.

    Args:
        block_id: which block.
        mirror: the state after the newest report.
        reports: newest first.
        name: sequence id -> label.
        limit: how many moments at most.
    """
    holders = set(mirror.holders[block_id])
    moments: list[Moment] = []
    for report in reports:
        for event in reversed(report.events):
            text = _undo(event, block_id, holders, name)
            if text:
                moments.append(Moment(report.step, text))
                if len(moments) == limit:
                    return moments
    return moments


def _undo(event: ev.CacheEvent, block_id: int, holders: set[int], name: Callable[[int], str]) -> str:  # noqa: PLR0911
    """Take the event back from `holders`; what it did to the block in words, or nothing."""
    match event:
        case ev.BlockAllocated(seq_id=seq_id, block_id=taken) if taken == block_id:
            holders.discard(seq_id)
            return f"allocated to {name(seq_id)}"
        case ev.PrefixHit(seq_id=seq_id, block_ids=block_ids) if block_id in block_ids:
            holders.discard(seq_id)
            return f"+ref {name(seq_id)} (prefix hit)"
        case ev.SequenceForked(seq_id=seq_id, child_id=child_id) if child_id in holders:
            holders.discard(child_id)
            return f"+ref {name(child_id)} (fork of {name(seq_id)})"
        case ev.BlockCopied(seq_id=seq_id, src=src, dst=dst) if block_id == dst:
            holders.discard(seq_id)
            return f"copy of {src:03d} for {name(seq_id)}"
        case ev.BlockCopied(seq_id=seq_id, src=src, dst=dst) if block_id == src:
            holders.add(seq_id)
            return f"−ref {name(seq_id)} (copied → {dst:03d})"
        case ev.BlocksFreed(seq_id=seq_id, block_ids=block_ids) if block_id in block_ids:
            holders.add(seq_id)
            return f"−ref {name(seq_id)} (dropped)"
        case ev.SwappedOut(seq_id=seq_id, block_ids=block_ids) if block_id in block_ids:
            holders.add(seq_id)
            return f"−ref {name(seq_id)} (swapped out)"
        case ev.SwappedIn(seq_id=seq_id, block_ids=block_ids) if block_id in block_ids:
            holders.discard(seq_id)
            return f"+ref {name(seq_id)} (swapped in)"
        case ev.BlockEvicted(block_id=evicted) if evicted == block_id:
            return "evicted from the prefix cache"
        case ev.BlockCached(block_id=cached) if cached == block_id:
            return "full: findable by its hash"
        case ev.BlockUncached(block_id=uncached) if uncached == block_id:
            return "no longer findable: written in place"
        case _:
            return ""
