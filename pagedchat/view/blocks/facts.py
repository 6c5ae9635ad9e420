"""All that is known of one block, gathered from what the screens know of the engine. Pure."""

from dataclasses import dataclass

import msgspec

from pagedchat.engine.mirror import BlockState, CacheMirror
from pagedchat.view.blocks.history import Moment, block_history
from pagedchat.view.engine_view import EngineView
from pagedchat.view.sentences.cache_type import block_bytes_text
from pagedchat.view.sentences.token_text import quote_token

MAX_MOMENTS = 64
"""Moments of its history that are looked for at most."""


@dataclass(frozen=True, slots=True)
class Owner:
    """One sequence that holds the block."""

    seq_id: int
    name: str
    block_idx: int
    """Where the block stands in its block table."""


@dataclass(frozen=True, slots=True)
class Slot:
    """What one slot of the block holds."""

    token_id: int
    text: str
    """Quoted; empty where nothing has told it."""


@dataclass(frozen=True, slots=True)
class BlockFacts:
    """One block."""

    block_id: int
    state: BlockState
    pinned: bool
    ref_count: int
    was: int | None
    """The ref count before it changed last; None if nothing tells."""
    fill: int
    block_size: int
    allocated: int | None
    """The step at which it was taken for its present contents; None if that is too long ago, or it has none."""
    hash: str
    """In hex; empty while it cannot be found by hash."""
    parent: int | None
    """The block before it; None for the first block of a text, and where that one is gone."""
    parent_hash: str
    num_bytes: int
    size: str
    """The same for people, with the type of the cache and what that saves where it is not the model's own."""
    offset: int
    """Where it lies in the slab of all blocks, in bytes."""
    owners: list[Owner]
    slots: list[Slot]
    """As many as are filled, as far as their tokens are known."""
    history: list[Moment]
    """Newest first."""

    def as_json(self) -> str:
        """For the clipboard."""
        return msgspec.json.format(msgspec.json.encode(self)).decode()


def block_facts(view: EngineView, mirror: CacheMirror, block_id: int) -> BlockFacts:
    """Look everything up."""
    history = block_history(block_id, mirror, reversed(view.history), view.name, MAX_MOMENTS)
    refs, state = mirror.ref_counts[block_id], mirror.state(block_id)
    has_contents = state in ("cached", "in_use")
    num_bytes = view.shown.info.block_bytes
    block_hash = mirror.block_hashes[block_id]
    return BlockFacts(
        block_id=block_id,
        state=state,
        pinned=block_id in mirror.pinned,
        ref_count=refs,
        was=next((moment.refs for moment in history if moment.refs != refs), None),
        fill=mirror.fill(block_id),
        block_size=mirror.block_size,
        allocated=next((moment.step for moment in history if moment.fresh), None) if has_contents else None,
        hash=block_hash.hex() if block_hash else "",
        parent=_parent(mirror, block_id),
        parent_hash=mirror.block_parents[block_id].hex(),
        num_bytes=num_bytes,
        size=block_bytes_text(view.shown.info),
        offset=block_id * num_bytes,
        owners=[_owner(view, mirror, seq_id, block_id) for seq_id in mirror.holders[block_id]],
        slots=[_slot(view, token_id) for token_id in tokens_of(mirror, block_id)],
        history=history,
    )


def tokens_of(mirror: CacheMirror, block_id: int) -> list[int]:
    """The tokens in its slots: its own if it is findable, else those of the owner that has computed the most."""
    if mirror.block_tokens[block_id]:
        return list(mirror.block_tokens[block_id])
    holders = [mirror.sequences[seq_id] for seq_id in mirror.holders[block_id]]
    if not holders:
        return []
    owner = max(holders, key=lambda sequence: sequence.num_computed)
    first = owner.block_table.index(block_id) * mirror.block_size
    return owner.token_ids[first : min(first + mirror.block_size, owner.num_computed)]


def _owner(view: EngineView, mirror: CacheMirror, seq_id: int, block_id: int) -> Owner:
    return Owner(seq_id, view.name(seq_id), mirror.sequences[seq_id].block_table.index(block_id))


def _slot(view: EngineView, token_id: int) -> Slot:
    text = view.token_texts.get(token_id)
    return Slot(token_id, "" if text is None else quote_token(text))


def _parent(mirror: CacheMirror, block_id: int) -> int | None:
    """The block before it in an owner's table; with no owner, whichever block is found by the parent's hash."""
    for seq_id in mirror.holders[block_id]:
        table = mirror.sequences[seq_id].block_table
        block_idx = table.index(block_id)
        return table[block_idx - 1] if block_idx else None
    parent_hash = mirror.block_parents[block_id]
    if parent_hash and parent_hash in mirror.block_hashes:
        return mirror.block_hashes.index(parent_hash)
    return None
