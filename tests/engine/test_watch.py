"""The check that goes on while the engine works: silent when all is well, and quick to notice when it is not."""

import re

import pytest

from tests.engine.test_core import ask, make_engine, tokens


@pytest.fixture
def engine():
    engine = make_engine(num_blocks=200, model_len=600)
    done = ask(engine, tokens(12, 900))
    engine.step()
    engine.close(done)
    engine.controls.pin(0)
    for start in (100, 300, 500):
        ask(engine, tokens(21, start), max_tokens=150)
    engine.step()
    return engine


def run(engine, num_steps: int) -> None:
    for _ in range(num_steps):
        engine.step()


def test_nothing_is_found_where_nothing_is_wrong(engine):
    assert engine.watch.num_rounds == 0
    run(engine, 60)
    assert engine.watch.num_rounds >= 2
    assert engine.watch.violation is None


def corrupt_ref_count(engine) -> None:
    engine.blocks.pool.ref_counts[engine.sequences[2].block_table[1]] += 1


def lose_a_free_block(engine) -> None:
    engine.blocks.pool.free_blocks.pop(0)


def free_a_cached_block(engine) -> None:
    engine.blocks.cache.remove(1)


def cache_a_block_in_use(engine) -> None:
    engine.blocks.pool.cached_blocks[engine.sequences[2].block_table[0]] = None
    engine.blocks.pool.free_blocks.pop(0)


def drop_a_table_entry(engine) -> None:
    engine.sequences[3].block_table[0] = 150


def corrupt_the_first_block(engine) -> None:
    engine.blocks.pool.ref_counts[0] += 1
    engine.blocks.pool.num_in_use += 1
    engine.blocks.pool.num_idle_pinned -= 1


def corrupt_the_last_block(engine) -> None:
    engine.blocks.pool.ref_counts[199] += 1


def replace_a_late_table_entry(engine) -> None:
    run(engine, 130)
    engine.sequences[3].block_table[35] = 150


def share_what_is_written(engine) -> None:
    engine.blocks.pool.ref_counts[engine.sequences[4].block_table[-1]] = 2


@pytest.mark.parametrize(
    ("corrupt", "sentence"),
    [
        (corrupt_ref_count, r"block \d+ has ref count 2, but 1 entries in block tables"),
        (lose_a_free_block, "200 blocks, but"),
        (free_a_cached_block, "can be found"),
        (cache_a_block_in_use, "which nobody holds"),
        (drop_a_table_entry, "entries in block tables"),
        (corrupt_the_first_block, "block 0 has ref count 1, but 0 entries"),
        (corrupt_the_last_block, "block 199 has ref count 1, but 0 entries"),
        (replace_a_late_table_entry, "entries in block tables"),
        (share_what_is_written, r"sequence \d+ wrote to block \d+, which has ref count 2"),
    ],
)
def test_what_is_wrong_is_found_within_two_rounds_and_stays_known(engine, corrupt, sentence):
    corrupt(engine)
    rounds = engine.watch.num_rounds
    while engine.watch.violation is None and engine.watch.num_rounds < rounds + 2:
        engine.watch.check(engine.scheduler._batch)
    assert engine.watch.violation is not None
    assert re.search(sentence, engine.watch.violation)
    found = engine.watch.violation
    engine.watch.check(engine.scheduler._batch)
    assert engine.watch.violation == found


def test_the_watch_sees_what_a_step_has_written_to() -> None:
    engine = make_engine()
    seq_id = ask(engine, tokens(6), max_tokens=8)
    engine.step()
    engine.blocks.pool.ref_counts[engine.sequences[seq_id].block_table[-1]] += 1
    engine.step()
    assert engine.watch.violation is not None
    assert engine.watch.violation.startswith(f"sequence {seq_id} wrote to block 1, which has ref count 2")
