"""Blocks in host memory, where sequences wait that were swapped out.

Forks share blocks there as they do on the device: a full block that is already in host memory is found by its hash
and gets one more owner instead of a second copy.
"""

from collections.abc import Sequence as Hashes

from pagedchat.engine.block_pool import BlockPool


class HostBlocks:
    """A `BlockPool` in host memory with the hashes of the full blocks in use; nothing outlives its last owner."""

    def __init__(self, num_blocks: int) -> None:
        self.pool = BlockPool(num_blocks)
        self._by_hash: dict[bytes, int] = {}
        self._hashes: dict[int, bytes] = {}

    @property
    def num_free(self) -> int:
        """Blocks that can be taken."""
        return len(self.pool.free_blocks)

    def num_missing(self, hashes: Hashes[bytes | None]) -> int:
        """How many new blocks these need; `None` stands for a block that is not full."""
        return sum(1 for block_hash in hashes if block_hash is None or block_hash not in self._by_hash)

    def take(self, block_hash: bytes | None) -> tuple[int, bool]:
        """A host block for the block with this hash (one must be free).

        Returns:
            `(host_block_id, is_new)`: a new one must be filled, another has the contents already.
        """
        if block_hash is not None and block_hash in self._by_hash:
            host_id = self._by_hash[block_hash]
            self.pool.share(host_id)
            return host_id, False
        host_id = self.pool.take()
        if block_hash is not None:
            self._by_hash[block_hash] = host_id
            self._hashes[host_id] = block_hash
        return host_id, True

    def share(self, host_id: int) -> None:
        """One more owner."""
        self.pool.share(host_id)

    def drop(self, host_ids: Hashes[int]) -> None:
        """One owner less for each."""
        for host_id in host_ids:
            if self.pool.drop(host_id, findable=False) and host_id in self._hashes:
                del self._by_hash[self._hashes.pop(host_id)]
