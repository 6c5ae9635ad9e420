"""The fixed set of physical blocks: who may take one, who holds one, which may be taken back.

A block is in exactly one of four states:

* *free*: nothing of value in it, on the stack `free_blocks`;
* *cached*: ref count 0, contents still valid and findable by hash, in `cached_blocks`, least recently used first,
  or, if it is pinned, only in `pinned`;
* *in use*: ref count 1 or more (pinned or not);
* *withheld*: out of reach because the pool was given a limit, on the stack `withheld`.

Every operation is O(1) a block: the free blocks are a stack (the block used last is taken first, which is kind to
CPU caches), the cached blocks an `OrderedDict`, which is a hash table over a linked list. The pool knows nothing of
sequences, tokens or hashes; whether a block is findable it is told.
"""

from collections import OrderedDict
from collections.abc import Container

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
        self.withheld: list[int] = []
        """The last one is returned first."""
        self.pinned: dict[int, None] = {}
        """Findable blocks that are not evicted."""
        self.num_idle_pinned = 0
        """Pinned blocks without an owner."""
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
    def num_cached(self) -> int:
        """Blocks in the state *cached*, pinned ones included."""
        return len(self.cached_blocks) + self.num_idle_pinned

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
        for block_id in block_ids:
            self.ref_counts[block_id] = 1
        self.num_references += len(block_ids)
        self.num_in_use += len(block_ids)
        self.changed.update(block_ids)
        return block_ids

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

    # --- checking -----------------------------------------------------------------------------------

    def check_totals(self) -> None:
        """Every block is in some state, as far as the sizes of the lists tell; cheap enough for every step.

        Raises:
            IntegrityError: with the numbers that disagree.
        """
        free, cached, withheld = len(self.free_blocks), self.num_cached, len(self.withheld)
        if free + cached + withheld + self.num_in_use != self.num_blocks:
            raise IntegrityError(
                f"{self.num_blocks} blocks, but {free} free, {cached} cached, {withheld} withheld "
                f"and {self.num_in_use} in use"
            )

    def check_integrity(self) -> None:
        """Every block is in exactly one state and the running totals are right.

        Raises:
            IntegrityError: with the numbers that disagree.
        """
        self.check_totals()
        in_use = [block_id for block_id, count in enumerate(self.ref_counts) if count > 0]
        idle_pinned = [block_id for block_id in self.pinned if not self.ref_counts[block_id]]
        places = [*self.free_blocks, *self.cached_blocks, *idle_pinned, *self.withheld, *in_use]
        if sorted(places) != list(range(self.num_blocks)):
            raise IntegrityError(f"of {self.num_blocks} blocks one is in two lists or in none: {sorted(places)}")
        if min(self.ref_counts, default=0) < 0:
            raise IntegrityError(f"negative ref count: {self.ref_counts}")
        totals = (sum(self.ref_counts), sum(count > 1 for count in self.ref_counts), len(in_use), len(idle_pinned))
        counted = (self.num_references, self.num_shared, self.num_in_use, self.num_idle_pinned)
        if totals != counted:
            raise IntegrityError(f"(references, shared, in use, idle pinned) are {totals}, counted {counted}")
