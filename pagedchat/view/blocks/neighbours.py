"""From one block to the next: in a chat's block table, or among the blocks of the same owners. Pure."""

from pagedchat.engine.mirror import CacheMirror


def in_chat(mirror: CacheMirror, block_id: int, steps: int, chat: int | None) -> tuple[int, int] | None:
    """The block some entries further on in a block table.

    Args:
        mirror: the cache.
        block_id: where to start.
        steps: how many entries on; negative ones go back.
        chat: the sequence to stay with, if it holds the block; else it is the first one that does.

    Returns:
        The block and the sequence whose table it was found in; None where the table ends or nobody has the block.
    """
    holders = mirror.holders[block_id]
    if not holders:
        return None
    seq_id = chat if chat in holders and chat is not None else holders[0]
    table = mirror.sequences[seq_id].block_table
    block_idx = table.index(block_id) + steps
    return (table[block_idx], seq_id) if 0 <= block_idx < len(table) else None


def same_owners(mirror: CacheMirror, block_id: int) -> int | None:
    """The block with the next higher number that the same sequences hold; after the last one the first again."""
    holders = mirror.holders[block_id]
    if not holders:
        return None
    table = mirror.sequences[holders[0]].block_table
    alike = sorted(other for other in table if set(mirror.holders[other]) == set(holders) and other != block_id)
    return next((other for other in alike if other > block_id), alike[0] if alike else None)
