"""From a block table to the slots of the cache."""

import torch


def context_slots(block_table: list[int], start: int, end: int, block_size: int) -> torch.Tensor:
    """Slots of the tokens `start` to `end - 1` of a sequence.

    Args:
        block_table: ids of the sequence's blocks in order, covering at least `end` tokens.
        start, end: positions in the sequence.
        block_size: token slots in a block.

    Returns:
        `[end - start]`, int64, on the CPU.

    Raises:
        ValueError: the block table is too short.
    """
    first = start // block_size
    stop = -(-end // block_size)
    if stop > len(block_table):
        raise ValueError(
            f"block_table has {len(block_table)} blocks of {block_size}, expected {stop} for {end} tokens"
        )
    blocks = torch.tensor(block_table[first:stop], dtype=torch.int64)
    slots = (blocks[:, None] * block_size + torch.arange(block_size)).view(-1)
    return slots[start - first * block_size : end - first * block_size]
