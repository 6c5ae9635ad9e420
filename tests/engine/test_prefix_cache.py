"""Blocks by what is in them; and by a key: one, none or several, the newest first, and no work for a collector."""

import gc
import random

import pytest

from pagedchat.engine.block_hashes import ROOT, hash_block
from pagedchat.engine.prefix_cache import BlockIndex, CachedBlock, PrefixCache


def test_the_first_block_with_a_hash_stays_the_one_to_be_found():
    cache = PrefixCache()
    name = hash_block(ROOT, [1, 2])
    assert cache.add(5, name, ROOT, [1, 2])
    assert not cache.add(6, name, ROOT, [1, 2])
    assert cache.find(name) == 5
    assert 6 not in cache


def test_a_head_match_takes_the_longest_agreement_under_the_same_parent():
    cache = PrefixCache()
    parent = hash_block(ROOT, [0, 0, 0, 0])
    for block, tokens in enumerate([[1, 2, 3, 4], [1, 2, 9, 9], [1, 2, 3, 9]]):
        cache.add(block, hash_block(parent, tokens), parent, tokens)
    assert cache.find_head(parent, [1, 2, 9]) == (1, 3)
    assert cache.find_head(parent, [1, 2, 3, 4]) == (0, 4)
    assert cache.find_head(parent, [7]) is None
    assert cache.find_head(ROOT, [1, 2]) is None
    assert cache.find_head(parent, []) is None


def test_of_equal_agreement_the_newest_is_taken_and_only_the_newest_are_looked_at():
    cache = PrefixCache()
    for block in range(33):
        tokens = [1, 2, 3, 4] if block == 0 else [1, 2, 9, block]
        cache.add(block, hash_block(ROOT, tokens), ROOT, tokens)
    assert cache.find_head(ROOT, [1, 2, 3, 4]) == (32, 2), "the oldest of 33 agrees for longer"
    cache.remove(32)
    assert cache.find_head(ROOT, [1, 2, 3, 4]) == (0, 4)


def test_a_removed_block_is_found_no_more_in_any_way():
    cache = PrefixCache()
    name = hash_block(ROOT, [1, 2])
    cache.add(5, name, ROOT, [1, 2])
    cache.remove(5)
    assert cache.find(name) is None
    assert cache.find_head(ROOT, [1]) is None
    assert len(cache) == 0


def test_the_newest_block_after_a_parent_is_known_until_it_is_removed():
    cache = PrefixCache()
    for block, tokens in enumerate([[1, 2], [3, 4]]):
        cache.add(block, hash_block(ROOT, tokens), ROOT, tokens)
    newest = cache.newest_after(ROOT)
    assert newest is not None
    assert newest == cache.entry(1)
    cache.remove(1)
    assert cache.newest_after(ROOT) == cache.entry(0)
    cache.remove(0)
    assert cache.newest_after(ROOT) is None
    assert cache.entry(0) is None


# --- the index --------------------------------------------------------------------------------------


def block(block_id: int) -> CachedBlock:
    return CachedBlock(block_id, bytes([block_id]) * 16, b"", (1, 2))


def ids(index: BlockIndex, key: bytes = b"k") -> list[int]:
    return [found.block_id for found in index.newest_first(key)]


def test_a_key_has_as_many_blocks_as_came() -> None:
    index = BlockIndex()
    assert ids(index) == []
    for block_id in (3, 1, 2):
        index.add(b"k", block(block_id))
    assert ids(index) == [2, 1, 3]
    assert ids(index, b"l") == []


@pytest.mark.parametrize("seed", range(5))
def test_whatever_comes_and_goes_it_is_like_a_dict_of_dicts(seed: int) -> None:
    source, index = random.Random(seed), BlockIndex()
    expected: dict[bytes, dict[int, CachedBlock]] = {b"a": {}, b"b": {}}
    for _ in range(300):
        key, new = source.choice([b"a", b"b"]), block(source.randrange(5))
        if new.block_id in expected[key]:
            index.remove(key, expected[key].pop(new.block_id))
        else:
            expected[key][new.block_id] = new
            index.add(key, new)
        assert [*index.newest_first(key)] == [*reversed(expected[key].values())]
    for key, there in expected.items():
        for left in there.values():
            index.remove(key, left)
    assert not index._found


def test_blocks_are_no_work_for_the_garbage_collector() -> None:
    assert not gc.is_tracked(block(1))
