"""The fixed set of physical blocks: who may take one, who holds one, which may be taken back.

A block is in exactly one of four states:

* *free*: nothing of value in it, on the stack `free_blocks`;
* *cached*: ref count 0, contents still valid and findable by hash, in `cached_blocks`, least recently used first,
  or, if it is pinned, only in `pinned`;
* *in use*: ref count 1 or more (pinned or not);
* *withheld*: out of reach because the pool was given a limit, on the stack `withheld`.

Every operation is O(1) a block: the free blocks are a stack (the block used last is taken first, which is kind to
CPU caches), the cached blocks an `OrderedDict`, which is a hash table over a linked list. A pool knows nothing of
sequences, tokens or hashes; whether a block is findable it is told. Host memory has a pool of its own, which
`HostBlocks` fills with what was swapped out.
"""

from collections import OrderedDict
from collections.abc import Container, Iterable
from itertools import islice


class BlockPool:
    """`num_blocks` blocks, ids 0 to `num_blocks - 1`, all free at first; block 0 is taken first."""

    def __init__(self, num_blocks: int) -> None:
        self.num_blocks = num_blocks
        self.ref_counts = [0] * num_blocks
        self.free_blocks = list(range(num_blocks - 1, -1, -1))
        """The last one is taken next."""
        self.cached_blocks: OrderedDict[int, None] = OrderedDict()
        """The first one is evicted next."""
        self.withheld: list[int] = []
        """The last one is returned first."""
        self.pinned: dict[int, None] = {}
        """Findable blocks that are not evicted."""
        self.num_idle_pinned = 0
        """Pinned blocks without an owner; they count as cached."""
        self.num_in_use = 0
        """Blocks with a ref count above zero."""
        self.num_references = 0
        """Sum of all ref counts, that is, entries of all block tables together."""
        self.num_shared = 0
        """Blocks with a ref count of two or more."""
        self.changed: set[int] = set()
        """Blocks that got or lost an owner since somebody emptied this set."""

    @property
    def num_available(self) -> int:
        """Blocks that can be taken without taking one from a sequence."""
        return len(self.free_blocks) + len(self.cached_blocks)

    @property
    def num_usable(self) -> int:
        """Blocks that a limit leaves."""
        return self.num_blocks - len(self.withheld)

    @property
    def oldest_cached(self) -> int:
        """The least recently used cached block; there must be one."""
        return next(iter(self.cached_blocks))

    # --- owners -------------------------------------------------------------------------------------

    def take(self) -> int:
        """A free block, with ref count 1 from now on. There must be one (`evict` makes one of a cached block)."""
        block_id = self.free_blocks.pop()
        self.ref_counts[block_id] = 1
        self.num_references += 1
        self.num_in_use += 1
        self.changed.add(block_id)
        return block_id

    def take_free(self, count: int) -> list[int]:
        """The next `count` free blocks, fewer if there are not as many; the same as `take` for each."""
        start = max(0, len(self.free_blocks) - count)
        block_ids = self.free_blocks[start:]
        block_ids.reverse()
        del self.free_blocks[start:]
        self._own(block_ids)
        return block_ids

    def take_cached(self, count: int) -> list[int]:
        """The `count` least recently used cached blocks, of which there must be so many; the same as `evict` and
        `take` for each where none is free. The caller forgets their hashes."""
        block_ids = list(islice(self.cached_blocks, count))
        for block_id in block_ids:
            del self.cached_blocks[block_id]
        self._own(block_ids)
        return block_ids

    def _own(self, block_ids: list[int]) -> None:
        """These have their first owner."""
        for block_id in block_ids:
            self.ref_counts[block_id] = 1
        self.num_references += len(block_ids)
        self.num_in_use += len(block_ids)
        self.changed.update(block_ids)

    def share(self, block_id: int) -> None:
        """One more owner for a block that is in use or cached."""
        count = self.ref_counts[block_id] = self.ref_counts[block_id] + 1
        self.num_references += 1
        self.changed.add(block_id)
        if count == 1:
            self.num_in_use += 1
            if block_id in self.pinned:
                self.num_idle_pinned -= 1
            else:
                del self.cached_blocks[block_id]
        elif count == 2:
            self.num_shared += 1

    def share_all(self, block_ids: list[int]) -> None:
        """`share` for each of these blocks."""
        ref_counts, idle = self.ref_counts, []
        for block_id in block_ids:
            count = ref_counts[block_id] = ref_counts[block_id] + 1
            if count == 1:
                idle.append(block_id)
            elif count == 2:
                self.num_shared += 1
        self.num_references += len(block_ids)
        self.num_in_use += len(idle)
        self.changed.update(block_ids)
        for block_id in idle:
            if block_id in self.pinned:
                self.num_idle_pinned -= 1
            else:
                del self.cached_blocks[block_id]

    def drop(self, block_id: int, findable: bool) -> bool:
        """One owner less; the last one leaves the block cached if it is findable, else free.

        Returns:
            Whether that was the last owner.
        """
        count = self.ref_counts[block_id] = self.ref_counts[block_id] - 1
        self.num_references -= 1
        self.changed.add(block_id)
        if count == 1:
            self.num_shared -= 1
        if count:
            return False
        self._set_idle([block_id], (block_id,) if findable else ())
        return True

    def drop_all(self, block_ids: list[int], findable: Container[int]) -> None:
        """`drop` for each of these blocks, of which those in `findable` are."""
        ref_counts, idle = self.ref_counts, []
        for block_id in block_ids:
            count = ref_counts[block_id] = ref_counts[block_id] - 1
            if not count:
                idle.append(block_id)
            elif count == 1:
                self.num_shared -= 1
        self.num_references -= len(block_ids)
        self.changed.update(block_ids)
        self._set_idle(idle, findable)

    def _set_idle(self, block_ids: list[int], findable: Container[int]) -> None:
        """The last owners of these blocks have gone."""
        pinned, cached, free = self.pinned, self.cached_blocks, self.free_blocks
        self.num_in_use -= len(block_ids)
        for block_id in block_ids:
            if block_id in pinned:
                self.num_idle_pinned += 1
            elif block_id in findable:
                cached[block_id] = None
            else:
                free.append(block_id)

    # --- between the lists --------------------------------------------------------------------------

    def evict(self, block_id: int) -> None:
        """This block of `cached_blocks` becomes the next free one; the caller forgets its hash."""
        del self.cached_blocks[block_id]
        self.free_blocks.append(block_id)

    def pin(self, block_id: int) -> None:
        """A findable block is not evicted from now on."""
        self.pinned[block_id] = None
        if not self.ref_counts[block_id]:
            del self.cached_blocks[block_id]
            self.num_idle_pinned += 1

    def unpin(self, block_id: int) -> None:
        """A pinned block may be evicted again; without an owner, as the most recently used one."""
        del self.pinned[block_id]
        if not self.ref_counts[block_id]:
            self.cached_blocks[block_id] = None
            self.num_idle_pinned -= 1

    def withhold(self, count: int) -> list[int]:
        """The next `count` free blocks (there must be as many) are out of reach from now on."""
        taken = [self.free_blocks.pop() for _ in range(count)]
        self.withheld.extend(taken)
        return taken

    def give_back(self, count: int) -> list[int]:
        """`count` withheld blocks are free again; the last of them is taken next."""
        returned = [self.withheld.pop() for _ in range(count)]
        self.free_blocks.extend(returned)
        return returned


class HostBlocks:
    """A pool in host memory, where sequences wait that were swapped out, with the hashes of its full blocks in use.

    Forks share blocks there as they do on the device: a full block that is already in host memory is found by its
    hash and gets one more owner instead of a second copy. Nothing outlives its last owner.
    """

    def __init__(self, num_blocks: int) -> None:
        self.pool = BlockPool(num_blocks)
        self._by_hash: dict[bytes, int] = {}
        self._hashes: dict[int, bytes] = {}

    @property
    def num_free(self) -> int:
        """Blocks that can be taken."""
        return len(self.pool.free_blocks)

    def num_missing(self, hashes: Iterable[bytes | None]) -> int:
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

    def drop(self, host_ids: Iterable[int]) -> None:
        """One owner less for each."""
        for host_id in host_ids:
            if self.pool.drop(host_id, findable=False) and host_id in self._hashes:
                del self._by_hash[self._hashes.pop(host_id)]
