"""Blocks by key: one, none or several, the newest first; and nothing that is searched for garbage."""

import gc
import random

import pytest

from pagedchat.engine.block_index import BlockIndex, CachedBlock


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
