"""The whole check of the cache's invariants: whatever is broken, it says what disagrees."""

import pytest

from pagedchat.engine.block_hashes import ROOT, hash_block
from pagedchat.engine.block_pool import BlockPool
from pagedchat.engine.integrity import check_pool
from pagedchat.errors import IntegrityError
from tests.engine.test_core import ask, finish, make_engine, tokens


@pytest.mark.parametrize("breakage", ["twice", "lost", "count"])
def test_a_pool_of_which_one_block_is_in_no_place_or_in_two_is_refused(breakage: str) -> None:
    pool = BlockPool(3)
    block = pool.take()
    if breakage == "twice":
        pool.free_blocks.append(block)
    elif breakage == "lost":
        pool.free_blocks.pop()
    else:
        pool.num_references = 7
    with pytest.raises(IntegrityError):
        check_pool(pool)


@pytest.mark.parametrize(
    ("broken", "sentence"),
    [
        (lambda engine, seq: seq.block_table.append(seq.block_table[0]), "device ref counts"),
        (lambda engine, seq: seq.host_block_table.append(0), "host ref counts"),
        (lambda engine, seq: seq.block_hashes.reverse(), "wrong hash for its block 0"),
        (lambda engine, seq: setattr(seq, "num_computed", 13), "than its blocks hold"),
        (lambda engine, seq: setattr(seq, "writable_len", 12), "takes block 2 for its own"),
        (lambda engine, seq: engine.blocks.cache._by_hash.popitem(), "is not found by its own hash"),
        (lambda engine, seq: setattr(seq, "num_computed", 6), "wrong hash for its block 1"),
        (
            lambda engine, seq: findable(engine, engine.blocks.pool.free_blocks[0]),
            r"\[\]; free .* findable: \[15\]",
        ),
        (lambda engine, seq: lose_a_cached_block(engine), r"not findable: \[3\]; .*: \[\]"),
    ],
)
def test_tables_and_cache_that_contradict_each_other_are_refused(broken, sentence: str) -> None:
    engine = make_engine(num_host_blocks=4)
    seq = engine.sequences[ask(engine, tokens(10))]
    finish(engine)
    engine.fork(seq.seq_id)
    engine.check_integrity()
    broken(engine, seq)
    with pytest.raises(IntegrityError, match=sentence):
        engine.check_integrity()


def findable(engine, block_id: int) -> None:
    engine.blocks.cache.add(block_id, hash_block(ROOT, [9] * 4), ROOT, [9] * 4)


def lose_a_cached_block(engine) -> None:
    closed = ask(engine, tokens(4, 300))
    finish(engine)
    engine.close(closed)
    engine.blocks.cache.remove(3)
