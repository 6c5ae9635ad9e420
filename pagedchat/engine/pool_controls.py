"""What a user may do to the pool by hand: give it a limit, pin blocks, evict them.

All of it between two steps. What cannot be done is refused in words and changes nothing; what is done is told as
events like everything else. Knows no session and no screen.
"""

from dataclasses import dataclass

from pagedchat import cache_events as ev
from pagedchat.engine.block_manager import BlockManager
from pagedchat.engine.scheduler import Scheduler
from pagedchat.errors import RequestError


@dataclass(frozen=True, slots=True)
class LimitChange:
    """What a new limit did."""

    num_withheld: int
    """Blocks that are out of reach now."""
    preempted: list[int]
    """Sequences that had to give their blocks back, running or not."""


class PoolControls:
    """The user's hand on the blocks.

    Args:
        blocks: whose pool it is.
        scheduler: takes blocks back from sequences.
    """

    def __init__(self, blocks: BlockManager, scheduler: Scheduler) -> None:
        self._blocks = blocks
        self._pool = blocks.pool
        self._scheduler = scheduler
        self.limit: int | None = None
        """Blocks that the pool may use; None is all of them."""

    # --- the limit ----------------------------------------------------------------------------------

    def set_limit(self, num_blocks: int | None) -> LimitChange:
        """Let the pool use at most `num_blocks` blocks; None lifts the limit.

        Blocks are withheld in the order in which they would be taken otherwise: free ones, cached ones, those of
        parked and waiting sequences, and then those of running ones, the newest first.

        Raises:
            RequestError: not between one block and the whole pool, or fewer than are pinned.
        """
        self._check_limit(num_blocks)
        target = self._pool.num_blocks - (self._pool.num_blocks if num_blocks is None else num_blocks)
        change = target - len(self._pool.withheld)
        preempted = self._withhold(change) if change > 0 else []
        if change < 0:
            self._tell(ev.BlocksReturned(self._pool.give_back(-change)))
        self.limit = num_blocks
        return LimitChange(target, preempted)

    def _check_limit(self, num_blocks: int | None) -> None:
        total, num_pinned = self._pool.num_blocks, len(self._pool.pinned)
        if num_blocks is None:
            return
        if not 1 <= num_blocks <= total:
            raise RequestError(
                f"The limit {num_blocks} is not possible.",
                f"Give a number from 1 to {total}, or off.",
            )
        if num_blocks < num_pinned:
            raise RequestError(
                f"The limit {num_blocks} is less than the {num_pinned} blocks that are pinned.",
                "Unpin some blocks first, or give a higher limit.",
            )

    def _withhold(self, count: int) -> list[int]:
        preempted = self._scheduler.make_available(count)
        while len(self._pool.free_blocks) < count:
            self._blocks.evict(self._pool.oldest_cached, "limit")
        self._tell(ev.BlocksWithheld(self._pool.withhold(count)))
        return preempted

    # --- pins ---------------------------------------------------------------------------------------

    def pin(self, block_id: int) -> None:
        """Do not evict this block.

        Raises:
            RequestError: there is no such block, it cannot be found by its contents, or it is pinned already.
        """
        self._check_block(block_id)
        if block_id in self._pool.pinned:
            raise RequestError(f"Block {block_id} is pinned already.", "Unpin it to let it be evicted again.")
        if block_id not in self._blocks.cache:
            raise RequestError(f"Block {block_id} cannot be pinned: {self._why_not_findable(block_id)}.", _PINNABLE)
        self._pool.pin(block_id)
        self._tell(ev.BlockPinned(block_id))

    def unpin(self, block_id: int | None = None) -> list[int]:
        """Let this block, or every pinned one, be evicted again.

        Returns:
            The blocks that were pinned.

        Raises:
            RequestError: there is no such block, or it is not pinned.
        """
        if block_id is not None:
            self._check_block(block_id)
            if block_id not in self._pool.pinned:
                raise RequestError(f"Block {block_id} is not pinned.", self._pinned_blocks())
        unpinned = list(self._pool.pinned) if block_id is None else [block_id]
        for each in unpinned:
            self._pool.unpin(each)
            self._tell(ev.BlockUnpinned(each))
        return unpinned

    # --- eviction -----------------------------------------------------------------------------------

    def evict(self, block_id: int) -> None:
        """Make a cached block free.

        Raises:
            RequestError: there is no such block, or it is not cached, or pinned.
        """
        self._check_block(block_id)
        if block_id not in self._pool.cached_blocks:
            raise RequestError(
                f"Block {block_id} cannot be evicted: {self._why_not_evictable(block_id)}.", _EVICTABLE
            )
        self._blocks.evict(block_id, "hand")
        self._scheduler.wake()

    def flush(self) -> int:
        """Make every cached block free, except for those that are pinned.

        Returns:
            How many there were.
        """
        count = len(self._pool.cached_blocks)
        while self._pool.cached_blocks:
            self._blocks.evict(self._pool.oldest_cached, "flush")
        self._scheduler.wake()
        return count

    # --- inside -------------------------------------------------------------------------------------

    def _tell(self, event: ev.CacheEvent) -> None:
        self._blocks.events.append(event)
        self._scheduler.wake()

    def _check_block(self, block_id: int) -> None:
        last = self._pool.num_blocks - 1
        if not 0 <= block_id <= last:
            raise RequestError(f"There is no block {block_id}.", f"Blocks are numbered from 0 to {last}.")

    def _why_not_findable(self, block_id: int) -> str:
        """Of a block that exists."""
        if block_id in self._pool.withheld:
            return "the limit withholds it"
        if not self._pool.ref_counts[block_id]:
            return "it is free, with nothing in it to keep"
        if not self._blocks.enable_prefix_caching:
            return "prefix caching is off, so nothing is found again"
        return "it is not full yet, or its tokens are found in another block already"

    def _why_not_evictable(self, block_id: int) -> str:
        """Of a block that exists."""
        owners = self._pool.ref_counts[block_id]
        if owners:
            return f"it is in use by {owners} {'chat' if owners == 1 else 'chats'}"
        if block_id in self._pool.pinned:
            return "it is pinned"
        return "the limit withholds it" if block_id in self._pool.withheld else "it is free already"

    def _pinned_blocks(self) -> str:
        pinned = sorted(self._pool.pinned)
        if not pinned:
            return "No block is pinned."
        return f"Pinned are {', '.join(map(str, pinned[:12]))}{' and others' if len(pinned) > 12 else ''}."


_PINNABLE = "Pin a full block of a chat, or a cached one."
_EVICTABLE = "Only cached blocks, which nobody holds, can be evicted."
