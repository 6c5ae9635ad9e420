"""Events of blocks in words. Each function sees the mirror as it stood when the event happened."""

from collections.abc import Callable
from typing import Any

from pagedchat import cache_events as ev
from pagedchat.view.sentences.event_lines import Teller, Told, quoted
from pagedchat.view.sentences.words import block_words, count

HEAD_TOKENS = 8
"""What a block held is told by its first tokens."""
LEAD_TOKENS = 4
"""What leads up to a missed token."""
_COPY_CAUSES = {
    "hit": "findable, a hit ended in it",
    "rewind": "findable, cut back into it",
    "again": "findable, last token once more",
}
"""Where nobody else holds the block; that somebody does is told by its ref count."""
_GROUP_CAUSES = {"beam": ", a beam was forked", "answer": ", answers part here"}
"""Who the others are."""
_FREE_CAUSES = {"pruned": ", others are likelier", "ended": ", the search is over"}
"""Why a beam gave its blocks back."""
_EVICT_CAUSES = {
    "room": ", least recently used",
    "limit": ", least recently used, for the limit",
    "hand": ", by hand",
    "flush": ", by a flush",
    "fault": ", a step failed",
}


def _prefix_hit(teller: Teller, event: ev.PrefixHit) -> Told:
    found = f"{count(event.num_tokens, 'token')} in {count(len(event.block_ids), 'block')}"
    words = f"{teller.name(event.seq_id)} found {found}: {block_words(event.block_ids)}"
    return Told("HIT", words, (event.seq_id,), tuple(event.block_ids))


def _prefix_missed(teller: Teller, event: ev.PrefixMissed) -> Told:
    name = teller.name(event.seq_id)
    if event.cached_block_id < 0:
        where = f"continues after token {event.position}" if event.position else "begins as it does"
        return Told("MISS", f"{name}: nothing cached {where}", (event.seq_id,))
    own, cached = quoted(teller, [event.token_id]), quoted(teller, [event.cached_token_id])
    words = f"{name} differs at token {event.position}: {own} not {cached} (block {event.cached_block_id:03d})"
    return Told("MISS", words + _lead(teller, event), (event.seq_id,), (event.cached_block_id,))


def _lead(teller: Teller, event: ev.PrefixMissed) -> str:
    """The tokens that come just before."""
    tokens = teller.mirror.sequences[event.seq_id].token_ids[: event.position][-LEAD_TOKENS:]
    return f", after {quoted(teller, tokens)}" if tokens else ""


def _copied(teller: Teller, event: ev.BlockCopied) -> Told:
    shared = f"ref {teller.mirror.ref_counts[event.src]}{_GROUP_CAUSES.get(event.cause, '')}"
    why = _COPY_CAUSES.get(event.cause) or shared
    source, slots = f"{event.src:03d} ({why})", count(event.num_slots, "slot")
    words = f"{teller.name(event.seq_id)} wrote {source} → {event.dst:03d}, {slots}"
    return Told("COW", words, (event.seq_id,), (event.dst, event.src))


def _freed(teller: Teller, event: ev.BlocksFreed) -> Told:
    _note_gain(teller, event.seq_id, event.block_ids)
    blocks = f"{len(event.block_ids)}: {block_words(event.block_ids)}"
    words = f"{teller.name(event.seq_id)} −{blocks}{_FREE_CAUSES.get(event.cause, '')}"
    return Told("FREE", words, (event.seq_id,), tuple(event.block_ids))


def _evicted(teller: Teller, event: ev.BlockEvicted) -> Told:
    tokens = teller.mirror.block_tokens[event.block_id]
    held = f", held {quoted(teller, tokens[:HEAD_TOKENS])}" if tokens else ""
    words = f"cached block {event.block_id:03d}{_EVICT_CAUSES.get(event.cause, '')}{held}"
    return Told("EVICT", words, (), (event.block_id,))


def _pinned(teller: Teller, event: ev.BlockPinned) -> Told:
    tokens = teller.mirror.block_tokens[event.block_id]
    held = f": {quoted(teller, tokens[:HEAD_TOKENS])}" if tokens else ""
    return Told("PIN", f"block {event.block_id:03d} stays{held}", (), (event.block_id,))


def _unpinned(_teller: Teller, event: ev.BlockUnpinned) -> Told:
    return Told("UNPIN", f"block {event.block_id:03d} may be evicted again", (), (event.block_id,))


def _withheld(teller: Teller, event: ev.BlocksWithheld) -> Told:
    return _limited(teller, event.block_ids, len(event.block_ids), "withheld")


def _returned(teller: Teller, event: ev.BlocksReturned) -> Told:
    return _limited(teller, event.block_ids, -len(event.block_ids), "returned")


def _limited(teller: Teller, block_ids: list[int], change: int, verb: str) -> Told:
    total = teller.mirror.num_blocks
    left = total - len(teller.mirror.withheld) - change
    moved = f"{count(len(block_ids), 'block')} {verb}: {block_words(block_ids)}"
    return Told("LIMIT", f"{left} of {total} blocks in the pool; {moved}", (), tuple(block_ids))


def _swapped_out(teller: Teller, event: ev.SwappedOut) -> Told:
    _note_gain(teller, event.seq_id, event.block_ids)
    moved = f"{count(len(event.block_ids), 'block')} out, {sum(event.copied)} copied"
    words = f"{teller.name(event.seq_id)} {moved}: {block_words(event.host_block_ids, 'h')}"
    return Told("SWAP", words, (event.seq_id,), tuple(event.block_ids))


def _swapped_in(teller: Teller, event: ev.SwappedIn) -> Told:
    moved = f"{count(len(event.block_ids), 'block')} in, {sum(event.copied)} copied"
    words = f"{teller.name(event.seq_id)} {moved}: {block_words(event.block_ids)}"
    return Told("SWAP", words, (event.seq_id,), tuple(event.block_ids))


def _host_freed(teller: Teller, event: ev.HostBlocksFreed) -> Told:
    words = f"{teller.name(event.seq_id)} −{len(event.host_block_ids)}: {block_words(event.host_block_ids, 'h')}"
    return Told("FREE", words, (event.seq_id,))


def _note_gain(teller: Teller, seq_id: int, block_ids: list[int]) -> None:
    """Blocks that become available: a preemption that follows tells how many."""
    refs = teller.mirror.ref_counts
    teller.gained[seq_id] = sum(1 for block_id in block_ids if refs[block_id] == 1)


BLOCK_TELLERS: dict[type, Callable[[Any, Any], Told]] = {
    ev.PrefixHit: _prefix_hit,
    ev.PrefixMissed: _prefix_missed,
    ev.BlockCopied: _copied,
    ev.BlocksFreed: _freed,
    ev.BlockEvicted: _evicted,
    ev.BlockPinned: _pinned,
    ev.BlockUnpinned: _unpinned,
    ev.BlocksWithheld: _withheld,
    ev.BlocksReturned: _returned,
    ev.SwappedOut: _swapped_out,
    ev.SwappedIn: _swapped_in,
    ev.HostBlocksFreed: _host_freed,
}
"""Those worth a line of their own; that a block became findable or not is seen in the block's own detail."""
