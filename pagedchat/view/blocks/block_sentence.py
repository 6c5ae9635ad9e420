"""One line on one block: id, state, ref count, owners and their indices, fill, hash, parent. Pure text."""

from pagedchat.engine.mirror import CacheMirror
from pagedchat.view.blocks.block_page import STATES
from pagedchat.view.engine_view import EngineView

_MAX_OWNERS = 9


def describe_block(view: EngineView, mirror: CacheMirror, block_id: int) -> str:
    """`041 in use · ref 2 · 1 tale[24] 2 tale⑂a[24] · 16/16 · #1a2b3c4d`."""
    state, refs = mirror.state(block_id), mirror.ref_counts[block_id]
    parts = [f"{block_id:03d} {STATES[state]}"]
    if block_id in mirror.pinned:
        parts.append("pinned")
    if refs:
        parts += [f"ref {refs}", _owners(view, mirror, block_id)]
    if state in ("cached", "in_use"):
        parts.append(f"{mirror.fill(block_id)}/{mirror.block_size}")
    block_hash = mirror.block_hashes[block_id]
    if block_hash is not None:
        parts.append(f"#{block_hash.hex()[:8]}")
    return " · ".join(parts)


def _owners(view: EngineView, mirror: CacheMirror, block_id: int) -> str:
    holders = mirror.holders[block_id]
    shown = [
        f"{view.name(seq_id)}[{mirror.sequences[seq_id].block_table.index(block_id)}]"
        for seq_id in holders[:_MAX_OWNERS]
    ]
    more = len(holders) - len(shown)
    return " ".join(shown) + (f" and {more} more" if more else "")
