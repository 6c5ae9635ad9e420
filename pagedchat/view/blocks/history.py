"""What happened to one block, read backwards from the reports that are kept. Pure."""

from collections.abc import Callable, Iterable
from typing import NamedTuple

from pagedchat import cache_events as ce
from pagedchat import events as ev
from pagedchat.engine.mirror import CacheMirror

Name = Callable[[int], str]
"""Sequence id -> label."""


class Moment(NamedTuple):
    """One thing that happened to the block."""

    step: int
    text: str
    refs: int
    """Its ref count before."""
    fresh: bool
    """Whether it was taken for new contents."""


def block_history(
    block_id: int, mirror: CacheMirror, reports: Iterable[ev.StepReport], name: Name, limit: int
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
            text = _undo(event, block_id, holders, name) or _plain(event, block_id, name, mirror.block_size)
            if text:
                moments.append(Moment(report.step, text, len(holders), _is_fresh(event, block_id)))
                if len(moments) == limit:
                    return moments
    return moments


def _undo(event: ce.CacheEvent, block_id: int, holders: set[int], name: Name) -> str:  # noqa: PLR0911
    """Take an event back that changed who holds the block; what it did in words, or nothing."""
    match event:
        case ce.BlockAllocated(seq_id=seq_id, block_id=taken) if taken == block_id:
            return _taken(holders, seq_id, f"allocated to {name(seq_id)}")
        case ce.PrefixHit(seq_id=seq_id, block_ids=block_ids) if block_id in block_ids:
            return _taken(holders, seq_id, f"+ref {name(seq_id)} (prefix hit)")
        case ce.SequenceForked(seq_id=seq_id, child_id=child_id) if child_id in holders:
            return _taken(holders, child_id, f"+ref {name(child_id)} (fork of {name(seq_id)})")
        case ce.BlockCopied(seq_id=seq_id, src=src, dst=dst) if block_id == dst:
            return _taken(holders, seq_id, f"copy of {src:03d} for {name(seq_id)}")
        case ce.BlockCopied(seq_id=seq_id, src=src, dst=dst) if block_id == src:
            return _dropped(holders, seq_id, f"−ref {name(seq_id)} (copied → {dst:03d})")
        case ce.BlocksFreed(seq_id=seq_id, block_ids=block_ids) if block_id in block_ids:
            return _dropped(holders, seq_id, f"−ref {name(seq_id)} (dropped)")
        case ce.SwappedOut(seq_id=seq_id, block_ids=block_ids) if block_id in block_ids:
            return _dropped(holders, seq_id, f"−ref {name(seq_id)} (swapped out)")
        case ce.SwappedIn(seq_id=seq_id, block_ids=block_ids) if block_id in block_ids:
            return _taken(holders, seq_id, f"+ref {name(seq_id)} (swapped in)")
    return ""


def _taken(holders: set[int], seq_id: int, text: str) -> str:
    holders.discard(seq_id)
    return text


def _dropped(holders: set[int], seq_id: int, text: str) -> str:
    holders.add(seq_id)
    return text


def _plain(event: ce.CacheEvent, block_id: int, name: Name, block_size: int) -> str:
    """What an event did that left the holders alone, or nothing."""
    match event:
        case ce.BlocksWithheld(block_ids=block_ids) if block_id in block_ids:
            return "withheld: the pool was limited"
        case ce.BlocksReturned(block_ids=block_ids) if block_id in block_ids:
            return "given back to the pool"
        case ce.PrefixMissed(cached_block_id=cached) if cached == block_id:
            # A block that differs from its first slot on has nothing to do with the other text.
            slot = event.position % block_size
            return f"not shared with {name(event.seq_id)}: slot {slot} differs" if slot else ""
        case ce.BlockEvicted(block_id=about):
            text = f"evicted from the prefix cache{_EVICTED.get(event.cause, '')}"
        case ce.BlockCached(block_id=about):
            text = "full: findable by its hash"
        case ce.BlockUncached(block_id=about):
            text = f"no longer findable{_UNCACHED.get(event.cause, '')}"
        case ce.BlockPinned(block_id=about):
            text = "pinned: not to be evicted"
        case ce.BlockUnpinned(block_id=about):
            text = "unpinned"
        case _:
            return ""
    return text if about == block_id else ""


_EVICTED = {
    "room": ": a block was needed",
    "limit": ": the pool was limited",
    "hand": " by hand",
    "flush": " by a flush",
    "fault": ": a step failed",
}
_UNCACHED = {"write": ": written in place", "fault": ": a step failed"}


def _is_fresh(event: ce.CacheEvent, block_id: int) -> bool:
    match event:
        case ce.BlockAllocated():
            return True
        case ce.BlockCopied(dst=dst):
            return dst == block_id
        case ce.SwappedIn(block_ids=block_ids, copied=copied):
            return copied[block_ids.index(block_id)]
    return False
