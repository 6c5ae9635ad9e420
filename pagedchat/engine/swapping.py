"""Whole sequences on their way to host memory and back.

Planned here as `BlockOp`s and carried out by the model runner, as copies are. Nothing is moved that is there
already: full blocks are found by their hashes on either side. As in the block manager, what cannot be done for lack
of blocks changes nothing.
"""

from pagedchat import cache_events as ev
from pagedchat.engine.block_manager import BlockManager
from pagedchat.engine.output import BlockOp
from pagedchat.engine.sequence import Sequence


class Swapper:
    """Moves sequences between the device's blocks and those in host memory.

    Args:
        blocks: both.
    """

    def __init__(self, blocks: BlockManager) -> None:
        self._blocks = blocks
        self._pool, self._cache, self._host = blocks.pool, blocks.cache, blocks.host
        self.num_swaps_out = self.num_swaps_in = 0
        """Blocks that were copied."""

    def swap_out(self, seq: Sequence) -> bool:
        """Move the sequence's blocks to host memory; full ones that are there already are shared, not copied.

        Returns:
            False if host memory has too few blocks; then nothing has changed.
        """
        blocks, hashes = self._blocks, _padded(seq.block_hashes, len(seq.block_table))
        if self._host.num_missing(hashes) > self._host.num_free:
            return False
        host_ids, copied = [], []
        for block_id, block_hash in zip(seq.block_table, hashes, strict=True):
            host_id, is_new = self._host.take(block_hash)
            if is_new:
                blocks.block_ops.append(BlockOp("swap_out", block_id, host_id))
            host_ids.append(host_id)
            copied.append(is_new)
        blocks.events.append(ev.SwappedOut(seq.seq_id, seq.block_table, host_ids.copy(), copied))
        blocks.drop(seq.block_table[::-1])
        seq.block_table, seq.host_block_table, seq.writable_len = [], host_ids, 0
        self.num_swaps_out += sum(copied)
        return True

    def found_on_device(self, seq: Sequence) -> list[int]:
        """Blocks of a swapped sequence that are still on the device, or there again."""
        found = (self._cache.find(block_hash) for block_hash in seq.block_hashes)
        return [block_id for block_id in found if block_id is not None]

    def num_missing(self, seq: Sequence, length: int) -> int:
        """Available blocks needed to bring the sequence back and make its first `length` tokens computable."""
        found = self.found_on_device(seq)
        shared = sum(1 for block_id in found if block_id not in self._pool.cached_blocks)
        return self._blocks.num_blocks_for(length) - shared

    def swap_in(self, seq: Sequence) -> None:
        """Bring the blocks back; `num_missing` must be available. Those still findable are shared."""
        blocks, hashes = self._blocks, _padded(seq.block_hashes, len(seq.host_block_table))
        found = [None if block_hash is None else self._cache.find(block_hash) for block_hash in hashes]
        for block_id in found:  # before anything is allocated, lest one of them be evicted for it
            if block_id is not None:
                self._pool.share(block_id)
        for host_id, cached_id in zip(seq.host_block_table, found, strict=True):
            block_id = blocks.allocate() if cached_id is None else cached_id
            seq.block_table.append(block_id)
            if cached_id is None:
                blocks.block_ops.append(BlockOp("swap_in", host_id, block_id))
        copied = [block_id is None for block_id in found]
        blocks.events.append(ev.SwappedIn(seq.seq_id, seq.host_block_table, seq.block_table.copy(), copied))
        self._host.drop(seq.host_block_table[::-1])
        seq.host_block_table = []
        self.num_swaps_in += sum(copied)
        for index in range(len(seq.block_hashes)):
            if copied[index]:
                blocks.make_findable(seq, index)


def _padded(hashes: list[bytes], length: int) -> list[bytes | None]:
    """`None` for each block that is not full."""
    return [*hashes, *[None] * (length - len(hashes))]
