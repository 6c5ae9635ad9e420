"""Block tables: who holds which block, and what must be copied so that everybody stays right.

The manager decides; nothing is moved here. Copies are planned as ordered `BlockOp`s, which the model runner carries
out before the forward pass of the same step; so are moves to host memory and back, by `swapping`. Every change is
told as an event, completely enough that `CacheMirror` can follow.

Scarcity is a value: what cannot be done for lack of blocks returns False and changes nothing; the scheduler then
takes blocks back from somebody and asks again.
"""

from collections.abc import Iterable
from typing import Literal, NamedTuple

from pagedchat import cache_events as ev
from pagedchat.engine.block_hashes import ROOT, token_hashes
from pagedchat.engine.block_pool import BlockPool, HostBlocks
from pagedchat.engine.output import BlockOp
from pagedchat.engine.prefix_cache import PrefixCache
from pagedchat.engine.sequence import Sequence
from pagedchat.engine.tokens.logprobs import wants_prompt_logprobs


class PrefixMatch(NamedTuple):
    """Cached blocks that continue a sequence's block table."""

    block_ids: list[int]
    num_tokens: int
    """Tokens they save; may end inside the last block."""
    next_hash: bytes | None = None
    """Hash of the first full block that was looked for and not found."""
    missed: bool = False
    """Whether at least a block's worth of tokens was looked up, and not all of them were found."""


NO_MATCH = PrefixMatch([], 0)


class BlockManager:
    """Device blocks of all sequences, their prefix cache, and the host blocks behind them."""

    def __init__(
        self, num_blocks: int, block_size: int, num_host_blocks: int = 0, enable_prefix_caching: bool = True
    ) -> None:
        self.block_size = block_size
        self.pool = BlockPool(num_blocks)
        self.cache = PrefixCache()
        self.host = HostBlocks(num_host_blocks)
        self.enable_prefix_caching = enable_prefix_caching
        self.block_ops: list[BlockOp] = []
        """Planned and not carried out yet: the next batch has this very list, and its runner takes them off it."""
        self.events: list[ev.CacheEvent] = []
        """What happened since the last report; taken by the engine."""
        self.num_copies = self.num_evictions = 0

    # --- growing ------------------------------------------------------------------------------------

    def num_blocks_for(self, num_tokens: int) -> int:
        """Blocks that hold `num_tokens` tokens."""
        return -(-num_tokens // self.block_size)

    def is_looked_up(self, seq: Sequence) -> bool:
        """Whether cached blocks can continue the sequence: with a cache, and where it ends with a full block.

        Not where prompt tokens are to be told of: they have to go through the model.
        """
        if not self.enable_prefix_caching or wants_prompt_logprobs(seq):
            return False
        return seq.num_computed == len(seq.block_table) * self.block_size

    def match_prefix(self, seq: Sequence) -> PrefixMatch:
        """Cached blocks that hold the sequence's next uncomputed tokens; changes nothing.

        The last token is never matched: its logits are needed, so it must go through the model.
        """
        size = self.block_size
        start = seq.num_computed
        if not self.is_looked_up(seq):
            return NO_MATCH
        limit = len(seq.token_ids) - 1
        found, parent, missing = self._find_blocks(seq, start // size, limit // size)
        position = start + len(found) * size
        head = self.cache.find_head(parent, seq.token_ids[position : min(position + size, limit)])
        if head is not None:
            found.append(head[0])
            position += head[1]
        missed = position < limit and limit - start >= size
        return PrefixMatch(found, position - start, missing, missed)

    def _find_blocks(self, seq: Sequence, first: int, end: int) -> tuple[list[int], bytes, bytes | None]:
        """The blocks found for entries `first` to `end - 1` of a block table, up to the first that is not.

        Returns:
            `(block_ids, parent, missing)`: the hash of the last block that there is, and of the one not found.
        """
        parent = seq.block_hashes[-1] if seq.block_hashes else ROOT
        found: list[int] = []
        hashes = seq.token_hashes
        for index in range(first, end):
            if index >= len(hashes):  # twice as many each time: who finds some will find more
                token_hashes(seq, min(end, 2 * index + 1), self.block_size)
            block_hash = hashes[index]
            block_id = self.cache.find(block_hash)
            if block_id is None:
                return found, parent, block_hash
            found.append(block_id)
            parent = block_hash
        return found, parent, None

    def num_findable(self, seq: Sequence, num_tokens: int) -> int:
        """How many of the sequence's first `num_tokens` tokens a lookup would find now; it has no blocks."""
        if not self.enable_prefix_caching:
            return 0
        found, parent, _ = self._find_blocks(seq, 0, num_tokens // self.block_size)
        position = len(found) * self.block_size
        head = self.cache.find_head(parent, seq.token_ids[position : min(position + self.block_size, num_tokens)])
        return position + (head[1] if head is not None else 0)

    def next_hash(self, seq: Sequence) -> bytes | None:
        """The hash of the first block that the sequence has yet to fill, if its tokens are known already."""
        index = len(seq.block_hashes)
        if not self.enable_prefix_caching or (index + 1) * self.block_size > len(seq.token_ids):
            return None
        return token_hashes(seq, index + 1, self.block_size)[index]

    def num_missing(self, seq: Sequence, length: int, match: PrefixMatch = NO_MATCH) -> int:
        """Available blocks needed to make the sequence's first `length` tokens computable (with `match` taken)."""
        matched = len(match.block_ids)
        table_len = len(seq.block_table) + matched
        appended = max(0, self.num_blocks_for(length) - table_len)
        if not table_len:
            return appended
        if match.num_tokens % self.block_size:
            copies = 1
        else:
            copies = 0 if matched else len(self._blocks_to_copy(seq, seq.num_computed))
        return appended + copies + sum(map(self.pool.cached_blocks.__contains__, match.block_ids))

    def fits(self, seq: Sequence, found: Iterable[int] = ()) -> bool:
        """Whether all of the sequence's tokens could have blocks if every other sequence gave its own.

        Always so in a pool without a limit and without pins. A pinned block is of use only to a sequence that has
        it already, or for which it was `found`.
        """
        return self.num_blocks_for(len(seq.token_ids)) <= self.num_usable(seq, found)

    def num_usable(self, seq: Sequence, found: Iterable[int] = ()) -> int:
        """Blocks that limit and pins leave the sequence if every other one gives its own; see `fits`."""
        usable = self.pool.num_usable - len(self.pool.pinned)
        if self.pool.pinned:
            usable += len(self.pool.pinned.keys() & {*seq.block_table, *found})
        return usable

    def take_prefix(self, seq: Sequence, match: PrefixMatch) -> None:
        """Share the matched blocks; their tokens count as computed."""
        if not match.num_tokens:
            return
        self.pool.share_all(match.block_ids)
        seq.block_table.extend(match.block_ids)
        seq.num_computed += match.num_tokens
        seq.writable_len = 0
        seq.cut_by = "hit"
        self._extend_hashes(seq)
        self.events.append(ev.PrefixHit(seq.seq_id, list(match.block_ids), match.num_tokens))

    def prepare_write(self, seq: Sequence, end: int) -> bool:
        """Make the slots of tokens `num_computed` to `end - 1` exist and belong to this sequence alone.

        Blocks that are shared or findable are copied first (copy-on-write). Where not even one block can be had
        for that, a findable block without another owner is made unfindable and written in place, unless it is
        pinned.

        Returns:
            False if there are not enough blocks; then nothing has changed.
        """
        start = seq.num_computed
        to_copy = self._blocks_to_copy(seq, start)
        missing = max(0, self.num_blocks_for(end) - len(seq.block_table))
        if missing + len(to_copy) > self.pool.num_available:
            if not self._may_write_in_place(seq, to_copy, missing):
                return False
            for index in to_copy:
                self.forget_contents(seq.block_table[index], "write")
            to_copy = []
        for index in to_copy:
            self._copy_on_write(seq, index, start)
        self._append_blocks(seq, missing)
        seq.writable_len = len(seq.block_table) * self.block_size
        return True

    def append_block(self, seq: Sequence) -> None:
        """One more block, which must be available, for a sequence that may write to the end of those it has."""
        self._append_block(seq)
        seq.writable_len += self.block_size

    def can_write_in_place(self, seq: Sequence, length: int) -> bool:
        """Whether the sequence's first `length` tokens are computable if nothing is copied for them."""
        missing = max(0, self.num_blocks_for(length) - len(seq.block_table))
        return self._may_write_in_place(seq, self._blocks_to_copy(seq, seq.num_computed), missing)

    def cache_full_blocks(self, seq: Sequence, num_computed: int | None = None) -> None:
        """Make the blocks that were filled since the last call findable.

        Args:
            seq: whose blocks.
            num_computed: its leading tokens whose KV is in the cache, or will be when the step under way is done;
                those that are known to be there by default.
        """
        if not self.enable_prefix_caching:
            return
        count = (seq.num_computed if num_computed is None else num_computed) // self.block_size
        known = token_hashes(seq, count, self.block_size)
        for index in range(len(seq.block_hashes), count):
            seq.block_hashes.append(known[index])
            self.make_findable(seq, index)

    def hash_tokens(self, seq: Sequence) -> None:
        """Compute what looking the sequence's tokens up, and making its blocks findable, will take."""
        if self.enable_prefix_caching:
            token_hashes(seq, len(seq.token_ids) // self.block_size, self.block_size)

    def tell_miss(self, seq: Sequence) -> None:
        """Tell where the lookup ended whose match the sequence has just taken, and what is cached there."""
        offset = seq.num_computed % self.block_size
        if offset:
            other = self.cache.entry(seq.block_table[-1])
        else:
            other = self.cache.newest_after(seq.block_hashes[-1] if seq.block_hashes else ROOT)
        token_id, block_id = (other.token_ids[offset], other.block_id) if other else (-1, -1)
        position = seq.num_computed
        self.events.append(ev.PrefixMissed(seq.seq_id, position, seq.token_ids[position], token_id, block_id))

    # --- shrinking and sharing ----------------------------------------------------------------------

    def fork(self, parent: Sequence, child: Sequence) -> None:
        """`child` (empty) gets the parent's tokens and shares all its blocks; the caller tells the event.

        Blocks that the parent has not written to yet are dropped, lest they be copied.
        """
        self.truncate(parent)
        self.pool.share_all(parent.block_table)
        for block_id in parent.host_block_table:
            self.host.share(block_id)
        child.token_ids = parent.token_ids.copy()
        child.block_table = parent.block_table.copy()
        child.host_block_table = parent.host_block_table.copy()
        child.block_hashes = parent.block_hashes.copy()
        child.token_hashes = parent.token_hashes.copy()
        child.num_computed = parent.num_computed
        child.cut_by = parent.cut_by
        parent.writable_len = child.writable_len = 0

    def truncate(self, seq: Sequence, cause: ev.FreeCause = "") -> None:
        """Drop blocks and hashes past the computed tokens (after `num_computed` went down)."""
        keep = self.num_blocks_for(seq.num_computed)
        del seq.block_hashes[seq.num_computed // self.block_size :]
        seq.writable_len = 0
        if len(seq.block_table) > keep:
            dropped = seq.block_table[: keep - 1 if keep else None : -1]
            del seq.block_table[keep:]
            self.drop(dropped)
            self.events.append(ev.BlocksFreed(seq.seq_id, dropped, cause))
        if len(seq.host_block_table) > keep:
            dropped = seq.host_block_table[: keep - 1 if keep else None : -1]
            del seq.host_block_table[keep:]
            self.host.drop(dropped)
            self.events.append(ev.HostBlocksFreed(seq.seq_id, dropped))

    def give_back(self, seq: Sequence, keep: int) -> None:
        """Drop the blocks of a running sequence past its first `keep`, in which it has computed nothing."""
        dropped = seq.block_table[: keep - 1 : -1]
        if dropped:
            del seq.block_table[keep:]
            seq.writable_len = min(seq.writable_len, keep * self.block_size)
            self.drop(dropped)
            self.events.append(ev.BlocksFreed(seq.seq_id, dropped))

    def free(self, seq: Sequence, cause: ev.FreeCause = "") -> None:
        """Drop every block of the sequence; nothing of it counts as computed any more."""
        seq.num_computed = 0
        self.truncate(seq, cause)

    # --- one block ----------------------------------------------------------------------------------

    def evict(self, block_id: int, cause: ev.EvictCause) -> None:
        """Make a cached block free; its contents are found no more."""
        self.pool.evict(block_id)
        self._forget_evicted(block_id, cause)

    def _forget_evicted(self, block_id: int, cause: ev.EvictCause) -> None:
        self.cache.remove(block_id)
        self.num_evictions += 1
        self.events.append(ev.BlockEvicted(block_id, cause))

    def forget_contents(self, block_id: int, cause: Literal["write", "fault"]) -> None:
        """The block is not found any more: its contents are about to change, or may never have got there."""
        if block_id not in self.cache:
            return
        if block_id in self.pool.pinned:
            self.pool.unpin(block_id)
            self.events.append(ev.BlockUnpinned(block_id))
        if not self.pool.ref_counts[block_id]:
            self.evict(block_id, "fault")
            return
        self.cache.remove(block_id)
        self.events.append(ev.BlockUncached(block_id, cause))

    def allocate(self) -> int:
        """A block with ref count 1, a cached one evicted for it if need be; one must be available."""
        if not self.pool.free_blocks:
            self.evict(self.pool.oldest_cached, "room")
        return self.pool.take()

    def drop(self, block_ids: list[int]) -> None:
        """One owner less for each of these blocks."""
        self.pool.drop_all(block_ids, self.cache.block_ids)

    def make_findable(self, seq: Sequence, index: int) -> None:
        """A full block of the sequence, whose hash it has, is found by it from now on, unless another block is."""
        block_id, block_hash = seq.block_table[index], seq.block_hashes[index]
        if block_id in self.cache.block_ids:
            return
        parent = seq.block_hashes[index - 1] if index else ROOT
        tokens = seq.token_ids[index * self.block_size : (index + 1) * self.block_size]
        if self.cache.add(block_id, block_hash, parent, tokens):
            self.events.append(ev.BlockCached(block_id, block_hash, parent))

    # --- inside -------------------------------------------------------------------------------------

    def _append_blocks(self, seq: Sequence, count: int) -> None:
        """As many free blocks as there are, and cached ones, the oldest first, for the others."""
        free = self.pool.take_free(count)
        self.events += [ev.BlockAllocated(seq.seq_id, block_id) for block_id in free]
        seq.block_table += free
        if len(free) == count:
            return
        cached = self.pool.take_cached(count - len(free))
        for block_id in cached:
            self._forget_evicted(block_id, "room")
            self.events.append(ev.BlockAllocated(seq.seq_id, block_id))
        seq.block_table += cached

    def _append_block(self, seq: Sequence) -> None:
        block_id = self.allocate()
        seq.block_table.append(block_id)
        self.events.append(ev.BlockAllocated(seq.seq_id, block_id))

    def _blocks_to_copy(self, seq: Sequence, start: int) -> list[int]:
        """Indices of present blocks that writing from token `start` on would touch and must not."""
        table, ref_counts, findable = seq.block_table, self.pool.ref_counts, self.cache.block_ids
        first = start // self.block_size
        return [i for i in range(first, len(table)) if ref_counts[table[i]] > 1 or table[i] in findable]

    def _may_write_in_place(self, seq: Sequence, indices: list[int], num_missing: int) -> bool:
        """Whether nobody else needs these blocks, and the missing ones can be had."""
        block_ids = [seq.block_table[index] for index in indices]
        unwanted = all(self.pool.ref_counts[b] == 1 and b not in self.pool.pinned for b in block_ids)
        return unwanted and num_missing <= self.pool.num_available

    def _copy_on_write(self, seq: Sequence, index: int, start: int) -> None:
        src = seq.block_table[index]
        cause: ev.CopyCause = seq.cut_by
        if self.pool.ref_counts[src] > 1:
            cause = "shared" if seq.group is None else seq.group.copy_cause
        dst = self.allocate()
        self.block_ops.append(BlockOp("copy", src, dst))
        seq.block_table[index] = dst
        num_slots = start - index * self.block_size
        self.events.append(ev.BlockCopied(seq.seq_id, index, src, dst, num_slots, cause))
        self.drop([src])
        self.num_copies += 1

    def _extend_hashes(self, seq: Sequence) -> None:
        count = seq.num_computed // self.block_size
        seq.block_hashes = token_hashes(seq, count, self.block_size)[:count]
