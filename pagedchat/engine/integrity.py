"""The invariants of the cache, checked whole. Costs time in proportion to the cache; for tests and the curious."""

from collections import Counter
from collections.abc import Iterable

from pagedchat.engine.block_hashes import ROOT, hash_block
from pagedchat.engine.block_manager import BlockManager
from pagedchat.engine.block_pool import BlockPool
from pagedchat.engine.sequence import Sequence
from pagedchat.engine.watch import check_totals
from pagedchat.errors import IntegrityError


def check_integrity(blocks: BlockManager, sequences: Iterable[Sequence]) -> None:
    """Pool, block tables, prefix cache and host blocks agree with each other.

    Raises:
        IntegrityError: with the numbers that disagree.
    """
    sequences = list(sequences)
    check_pool(blocks.pool)
    check_pool(blocks.host.pool)
    device = Counter(block_id for seq in sequences for block_id in seq.block_table)
    host = Counter(block_id for seq in sequences for block_id in seq.host_block_table)
    _check_references("device", device, blocks.pool.ref_counts)
    _check_references("host", host, blocks.host.pool.ref_counts)
    _check_findable(blocks)
    for seq in sequences:
        _check_sequence(blocks, seq)


def check_pool(pool: BlockPool) -> None:
    """Every block of one pool is in exactly one state and the running totals are right.

    Raises:
        IntegrityError: with the numbers that disagree.
    """
    check_totals(pool)
    in_use = [block_id for block_id, count in enumerate(pool.ref_counts) if count > 0]
    idle_pinned = [block_id for block_id in pool.pinned if not pool.ref_counts[block_id]]
    places = [*pool.free_blocks, *pool.cached_blocks, *idle_pinned, *pool.withheld, *in_use]
    if sorted(places) != list(range(pool.num_blocks)):
        raise IntegrityError(f"of {pool.num_blocks} blocks one is in two lists or in none: {sorted(places)}")
    if min(pool.ref_counts, default=0) < 0:
        raise IntegrityError(f"negative ref count: {pool.ref_counts}")
    totals = (sum(pool.ref_counts), sum(count > 1 for count in pool.ref_counts), len(in_use), len(idle_pinned))
    counted = (pool.num_references, pool.num_shared, pool.num_in_use, pool.num_idle_pinned)
    if totals != counted:
        raise IntegrityError(f"(references, shared, in use, idle pinned) are {totals}, counted {counted}")


def _check_references(where: str, tables: Counter[int], ref_counts: list[int]) -> None:
    counted = {block_id: count for block_id, count in enumerate(ref_counts) if count}
    if counted != dict(tables):
        raise IntegrityError(f"{where} ref counts {counted} differ from the block tables' entries {dict(tables)}")


def _check_findable(blocks: BlockManager) -> None:
    for entry in blocks.cache.entries():
        if entry.block_hash != hash_block(entry.parent, entry.token_ids):
            raise IntegrityError(f"block {entry.block_id} is found by a hash that does not name its tokens")
        if blocks.cache.find(entry.block_hash) != entry.block_id:
            raise IntegrityError(f"block {entry.block_id} is not found by its own hash")
    kept, empty = (
        [*blocks.pool.cached_blocks, *blocks.pool.pinned],
        [*blocks.pool.free_blocks, *blocks.pool.withheld],
    )
    lost = [block_id for block_id in kept if block_id not in blocks.cache]
    stale = [block_id for block_id in empty if block_id in blocks.cache]
    if lost or stale:
        raise IntegrityError(f"cached or pinned but not findable: {lost}; free or withheld but findable: {stale}")


def _check_sequence(blocks: BlockManager, seq: Sequence) -> None:
    table = seq.block_table or seq.host_block_table
    if seq.block_table and seq.host_block_table:
        raise IntegrityError(f"{seq} has blocks in two places")
    if not seq.num_computed <= len(table) * blocks.block_size:
        raise IntegrityError(f"{seq} has more computed tokens than its blocks hold")
    if seq.num_computed > len(seq):
        raise IntegrityError(f"{seq} has more computed tokens than tokens")
    parent = ROOT
    for index, block_hash in enumerate(seq.block_hashes):
        tokens = seq.token_ids[index * blocks.block_size : (index + 1) * blocks.block_size]
        parent = hash_block(parent, tokens)
        if block_hash != parent or (index + 1) * blocks.block_size > seq.num_computed:
            raise IntegrityError(f"{seq} has a wrong hash for its block {index}")
    first_writable = seq.num_computed // blocks.block_size
    for block_id in seq.block_table[first_writable:] if seq.writable_len > seq.num_computed else []:
        if blocks.pool.ref_counts[block_id] != 1 or block_id in blocks.cache:
            raise IntegrityError(f"{seq} takes block {block_id} for its own, but it is shared")
