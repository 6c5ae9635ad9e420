"""Blocks taken, shared and dropped, on the device and in host memory; in which order they go."""

from pagedchat.engine.block_pool import BlockPool, HostBlocks
from pagedchat.engine.integrity import check_pool


def test_blocks_are_taken_in_order_and_the_last_used_first():
    pool = BlockPool(3)
    assert [pool.take(), pool.take()] == [0, 1]
    assert pool.drop(0, findable=False)
    assert pool.take() == 0
    assert pool.num_in_use == 2


def test_a_shared_block_outlives_its_first_owner():
    pool = BlockPool(2)
    block = pool.take()
    pool.share(block)
    assert (pool.num_shared, pool.num_references) == (1, 2)
    assert not pool.drop(block, findable=True)
    assert (pool.num_shared, pool.num_references) == (0, 1)
    assert pool.drop(block, findable=True)
    assert list(pool.cached_blocks) == [block]


def test_cached_blocks_are_evicted_least_recently_used_first():
    pool = BlockPool(3)
    for _ in range(3):
        pool.take()
    for block in (1, 0, 2):
        pool.drop(block, findable=True)
    pool.share(1)
    pool.drop(1, findable=True)  # used again, so last in the queue now
    assert pool.num_available == 3
    evicted = []
    while pool.cached_blocks:
        evicted.append(pool.oldest_cached)
        pool.evict(pool.oldest_cached)
    assert evicted == [0, 2, 1]
    check_pool(pool)


def test_free_blocks_are_taken_together_as_one_by_one() -> None:
    one, all_at_once = BlockPool(5), BlockPool(5)
    assert all_at_once.take_free(3) == [one.take() for _ in range(3)] == [0, 1, 2]
    assert all_at_once.take_free(3) == [one.take() for _ in range(2)] == [3, 4], "no more than there are"
    assert all_at_once.take_free(2) == []
    assert vars(one) == vars(all_at_once)
    check_pool(all_at_once)


def test_cached_blocks_are_taken_together_as_one_by_one() -> None:
    pools = one, all_at_once = BlockPool(4), BlockPool(4)
    for pool in pools:
        pool.take_free(4)
        pool.drop_all([2, 0, 3], {0, 2, 3})
    taken = []
    for _ in range(2):
        one.evict(one.oldest_cached)
        taken.append(one.take())
    assert all_at_once.take_cached(2) == taken == [2, 0]
    assert vars(one) == vars(all_at_once)
    check_pool(all_at_once)


def test_blocks_are_dropped_together_as_one_by_one() -> None:
    pools = BlockPool(6), BlockPool(6)
    for pool in pools:
        pool.take_free(6)
        pool.share(4)
        pool.pin(3)
    dropped, findable = [4, 3, 2, 0, 5], {2, 3, 5}
    for block_id in dropped:
        pools[0].drop(block_id, block_id in findable)
    pools[1].drop_all(dropped, findable)
    assert vars(pools[0]) == vars(pools[1])
    assert list(pools[1].cached_blocks) == [2, 5]
    assert pools[1].free_blocks == [0]
    check_pool(pools[1])


def test_blocks_are_shared_together_as_one_by_one() -> None:
    pools = BlockPool(6), BlockPool(6)
    for pool in pools:
        pool.take_free(5)
        pool.pin(3)
        pool.drop_all([1, 2, 3], {1, 2, 3})
        pool.changed.clear()
    shared = [0, 2, 3, 4, 2]
    for block_id in shared:
        pools[0].share(block_id)
    pools[1].share_all(shared)
    assert vars(pools[0]) == vars(pools[1])
    assert list(pools[1].cached_blocks) == [1]
    check_pool(pools[1])


# --- host memory ------------------------------------------------------------------------------------


def test_a_full_block_that_is_in_host_memory_is_not_missing_there() -> None:
    host = HostBlocks(4)
    assert host.num_missing([b"a", b"b", None]) == 3
    assert host.take(b"a") == (0, True)
    assert host.num_missing([b"a", b"b", None]) == 2
    assert host.num_missing([b"a"]) == 0
    assert host.take(b"a") == (0, False)
    assert host.take(None) == (1, True)
    assert host.take(None) == (2, True)
    assert host.pool.ref_counts == [2, 1, 1, 0]


def test_nothing_in_host_memory_outlives_its_last_owner() -> None:
    host = HostBlocks(2)
    for _ in range(2):
        host.take(b"a")
    host.drop([0])
    assert (host.num_free, host.num_missing([b"a"])) == (1, 0)
    host.drop([0])
    assert (host.num_free, host.num_missing([b"a"])) == (2, 1)
    assert not host.pool.cached_blocks
