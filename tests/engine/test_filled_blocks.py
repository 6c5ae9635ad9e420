"""Blocks that many decodes fill in the same step become findable over a few steps, and at once when it matters."""

from pagedchat import events as ev
from pagedchat.engine.core import EngineCore
from tests.engine.test_core import ask, kinds, make_engine, tokens

NUM_SEQS, BLOCK_SIZE = 60, 4


def engine_about_to_fill() -> EngineCore:
    """Sequences with nothing in common, all of whose next token fills a block."""
    engine = make_engine(num_blocks=8 * NUM_SEQS, max_num_batched_tokens=1024, block_size=BLOCK_SIZE)
    for i in range(NUM_SEQS):
        ask(engine, [i, *tokens(BLOCK_SIZE - 2)], max_tokens=12)
    engine.step()
    return engine


def test_they_become_findable_over_several_steps() -> None:
    engine = engine_about_to_fill()
    cached = [len(kinds(engine.step().events, ev.BlockCached)) for _ in range(4)]
    assert cached == [16, 16, 16, 12]
    engine.check_integrity()


def test_whoever_asks_for_a_sequence_finds_all_of_them() -> None:
    engine = engine_about_to_fill()
    engine.step()
    newcomer = ask(engine, engine.sequences[NUM_SEQS].token_ids[: BLOCK_SIZE + 1], seq_id=engine.open())
    report = engine.step()
    assert len(kinds(report.events, ev.BlockCached)) >= NUM_SEQS - 16
    [hit] = kinds(report.events, ev.PrefixHit)
    assert (hit.seq_id, hit.num_tokens) == (newcomer, BLOCK_SIZE)


def test_a_sequence_that_ends_leaves_its_full_blocks_findable() -> None:
    engine = make_engine(num_blocks=8 * NUM_SEQS, max_num_batched_tokens=1024, block_size=BLOCK_SIZE)
    for i in range(NUM_SEQS):
        ask(engine, [i, *tokens(BLOCK_SIZE - 2)], max_tokens=2)
    events = [event for _ in range(2) for event in engine.step().events]
    assert not engine.has_work
    assert len(kinds(events, ev.BlockCached)) == NUM_SEQS
