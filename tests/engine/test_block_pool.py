import pytest

from pagedchat.engine.block_pool import BlockPool
from pagedchat.errors import IntegrityError


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
    pool.check_integrity()


@pytest.mark.parametrize("breakage", ["twice", "lost", "count"])
def test_integrity_check_finds_what_is_broken(breakage):
    pool = BlockPool(3)
    block = pool.take()
    if breakage == "twice":
        pool.free_blocks.append(block)
    elif breakage == "lost":
        pool.free_blocks.pop()
    else:
        pool.num_references = 7
    with pytest.raises(IntegrityError):
        pool.check_integrity()
