"""The user's commands about the whole pool, carried out and answered in words, and what sequences have of it. Knows
no session and no screen."""

from pagedchat.cache_events import FIRST_OF_PROGRAMS
from pagedchat.engine.core import EngineCore
from pagedchat.errors import PagedChatError
from pagedchat.events import EngineNotice, SequenceFigures, SequencesTold
from pagedchat.service.commands import Evict, FlushCache, Pin, SetLimit, Unpin

PoolCommand = SetLimit | Pin | Unpin | Evict | FlushCache


def carry_out(core: EngineCore, command: PoolCommand) -> EngineNotice:
    """Do it, or say why not."""
    try:
        return EngineNotice(_done(core, command))
    except PagedChatError as error:
        return EngineNotice(error.message, error.hint, failed=True)


def _done(core: EngineCore, command: PoolCommand) -> str:
    controls = core.controls
    match command:
        case SetLimit(num_blocks):
            return _limited(core, num_blocks)
        case Pin(block_id):
            controls.pin(block_id)
            return f"Block {block_id} is pinned: it is not evicted."
        case Unpin(block_id):
            return _unpinned(controls.unpin(block_id))
        case Evict(block_id):
            controls.evict(block_id)
            return f"Block {block_id} is evicted and free."
        case FlushCache():
            count = controls.flush()
            return f"{counted(count, 'cached block')} evicted." if count else "No block was cached."


def _limited(core: EngineCore, num_blocks: int | None) -> str:
    change = core.controls.set_limit(num_blocks)
    if num_blocks is None:
        return f"No limit: all {core.limits.num_blocks} blocks can be used."
    told = [f"Limit {num_blocks}: {counted(change.num_withheld, 'block')} withheld"]
    num_chats = sum(seq_id < FIRST_OF_PROGRAMS for seq_id in change.preempted)
    if num_chats:
        told.append(f"{counted(num_chats, 'chat')} preempted")
    if num_chats < len(change.preempted):
        told.append(f"{counted(len(change.preempted) - num_chats, 'request')} preempted")
    return f"{', '.join(told)}."


def _unpinned(block_ids: list[int]) -> str:
    if len(block_ids) == 1:
        return f"Block {block_ids[0]} is not pinned any more."
    return f"{len(block_ids)} blocks are not pinned any more." if block_ids else "No block was pinned."


def told_sequences(core: EngineCore, most: int) -> SequencesTold:
    """How long each of the first `most` is, and how many of its blocks are its own."""
    ref_counts, told = core.blocks.pool.ref_counts, []
    for seq in list(core.sequences.values())[: max(0, most)]:
        shared = sum(ref_counts[block_id] > 1 for block_id in seq.block_table)
        told.append(SequenceFigures(seq.seq_id, seq.status, len(seq), len(seq.block_table) - shared, shared))
    return SequencesTold(told, len(core.sequences) - len(told))


def counted(count: int, noun: str) -> str:
    """`"1 block"`, `"2 blocks"`."""
    return f"{count} {noun}{'' if count == 1 else 's'}"
