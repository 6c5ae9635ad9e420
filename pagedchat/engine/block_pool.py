"""The fixed set of physical blocks: who may take one, who holds one, which may be taken back.

A block is in exactly one of three states:

* *free*: nothing of value in it, on the stack `free_blocks`;
* *cached*: ref count 0, contents still valid and findable by hash, in `cached_blocks`, least recently used first;
* *in use*: ref count 1 or more.

Every operation is O(1): the free blocks are a stack (the block used last is taken first, which is kind to CPU
caches), the cached blocks an `OrderedDict`, which is a hash table over a linked list. The pool knows nothing of
sequences, tokens or hashes; whether a block is findable it is told.
"""

from collections import OrderedDict

from pagedchat.errors import IntegrityError


class BlockPool:
    """`num_blocks` blocks, ids 0 to `num_blocks - 1`, all free at first; block 0 is taken first."""

    def __init__(self, num_blocks: int) -> None:
        self.num_blocks = num_blocks
        self.ref_counts = [0] * num_blocks
        self.free_blocks = list(range(num_blocks - 1, -1, -1))
        """The last one is taken next."""
        self.cached_blocks: OrderedDict[int, None] = OrderedDict()
        """The first one is evicted next."""
        self.num_references = 0
        """Sum of all ref counts, that is, entries of all block tables together."""
        self.num_shared = 0
        """Blocks with a ref count of two or more."""

    @property
    def num_available(self) -> int:
        """Blocks that can be taken without taking one from a sequence."""
        return len(self.free_blocks) + len(self.cached_blocks)

    @property
    def num_in_use(self) -> int:
        """Blocks with a ref count above zero."""
        return self.num_blocks - len(self.free_blocks) - len(self.cached_blocks)

    def take(self) -> int:
        """A free block, with ref count 1 from now on. There must be one (`evict` makes one of a cached block)."""
        block_id = self.free_blocks.pop()
        self.ref_counts[block_id] = 1
        self.num_references += 1
        return block_id

    def evict(self) -> int:
        """The least recently used cached block becomes the next free one; the caller forgets its hash."""
        block_id, _ = self.cached_blocks.popitem(last=False)
        self.free_blocks.append(block_id)
        return block_id

    def share(self, block_id: int) -> None:
        """One more owner for a block that is in use or cached."""
        count = self.ref_counts[block_id] = self.ref_counts[block_id] + 1
        self.num_references += 1
        if count == 1:
            del self.cached_blocks[block_id]
        elif count == 2:
            self.num_shared += 1

    def drop(self, block_id: int, findable: bool) -> bool:
        """One owner less; the last one leaves the block cached if it is findable, else free.

        Returns:
            Whether that was the last owner.
        """
        count = self.ref_counts[block_id] = self.ref_counts[block_id] - 1
        self.num_references -= 1
        if count == 1:
            self.num_shared -= 1
        if count:
            return False
        if findable:
            self.cached_blocks[block_id] = None
        else:
            self.free_blocks.append(block_id)
        return True

    def check_integrity(self) -> None:
        """Every block is in exactly one state and the running totals are right.

        Raises:
            IntegrityError: with the numbers that disagree.
        """
        in_use = [block_id for block_id, count in enumerate(self.ref_counts) if count > 0]
        everywhere = sorted([*self.free_blocks, *self.cached_blocks, *in_use])
        if everywhere != list(range(self.num_blocks)):
            raise IntegrityError(
                f"{self.num_blocks} blocks, but {len(self.free_blocks)} free, {len(self.cached_blocks)} cached "
                f"and {len(in_use)} in use, or one in two lists"
            )
        if min(self.ref_counts, default=0) < 0:
            raise IntegrityError(f"negative ref count: {self.ref_counts}")
        totals = (sum(self.ref_counts), sum(count > 1 for count in self.ref_counts))
        if totals != (self.num_references, self.num_shared):
            raise IntegrityError(
                f"(references, shared) are {totals}, counted {self.num_references, self.num_shared}"
            )
