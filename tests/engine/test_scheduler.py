"""Who runs next where not everybody can: order, exact fits, and who gives blocks to whom."""

import pytest

from pagedchat import cache_events as ev
from pagedchat.engine.core import EngineCore
from tests.engine.kv_simulator import expected_reply
from tests.engine.test_core import VOCAB, ask, ask_and_finish, finish, kinds, make_engine, tokens


def batch(engine: EngineCore) -> list[tuple[int, int]]:
    """The next step's sequences, and how many tokens each."""
    return [(entry.seq_id, entry.num_prefill + entry.num_decode) for entry in engine.step().batch]


def running(engine: EngineCore) -> list[int]:
    return [seq.seq_id for seq in engine.scheduler.queues.running]


# --- newcomers --------------------------------------------------------------------------------------


def test_nobody_is_held_back_at_first():
    assert make_engine().scheduler.held_back == []


def test_one_that_does_not_fit_yet_is_not_passed_by_a_smaller_one():
    engine = make_engine(num_blocks=6)
    first = ask(engine, tokens(12), max_tokens=4)
    engine.step()
    large, small = ask(engine, tokens(14, 300)), ask(engine, tokens(3, 500))
    assert batch(engine) == [(first, 1)]
    assert engine.scheduler.held_back == [], "blocks will come"
    finish(engine)
    assert {engine.sequences[seq_id].finish_reason for seq_id in (large, small)} == {"length"}


@pytest.mark.parametrize(("length", "starts"), [(8, True), (9, False)])
def test_one_starts_where_exactly_as_many_blocks_are_available_as_it_needs(length: int, starts: bool):
    engine = make_engine(num_blocks=5)
    first = ask(engine, tokens(10), max_tokens=2)
    engine.step()
    second = ask(engine, tokens(length, 300))
    engine.step()
    assert (second in running(engine) or engine.sequences[second].status == "parked") is starts
    assert engine.stats().preemptions == 0
    finish(engine)
    assert engine.sequences[first].finish_reason == "length"


def test_what_others_have_computed_need_not_be_available():
    engine = make_engine(num_blocks=5)
    ask(engine, tokens(12), max_tokens=3)
    engine.step()
    second = ask(engine, [*tokens(12), 7], max_tokens=2)
    engine.step()
    assert engine.sequences[second].block_table == [0, 1, 2, 4]


def test_one_that_waits_with_blocks_of_earlier_turns_keeps_them():
    engine = make_engine(num_blocks=6)
    waits = ask_and_finish(engine, tokens(7))
    first = ask(engine, tokens(12, 300), max_tokens=4)
    engine.step()
    ask(engine, tokens(6, 107), seq_id=waits)
    report = engine.step()
    assert [entry.seq_id for entry in report.batch] == [first]
    assert kinds(report.events, ev.SequencePreempted) == []
    assert engine.sequences[waits].block_table == [0, 1]
    finish(engine)
    assert engine.sequences[waits].num_cached_tokens == 7


@pytest.mark.parametrize("priority", [0, 1])
def test_those_that_were_swapped_out_and_those_that_wait_come_in_one_order(priority: int):
    engine = make_engine(num_blocks=8, num_host_blocks=8, preemption_mode="swap", max_num_seqs=1)
    swapped = ask_and_finish(engine, tokens(9))
    engine.controls.set_limit(1)
    engine.controls.set_limit(None)
    ask(engine, [7], seq_id=swapped)
    assert engine.sequences[swapped].status == "swapped"
    waiting = ask(engine, tokens(5, 300))
    engine.set_priority(waiting, priority)
    order = [entry.seq_id for entry in [*engine.step().batch, *engine.step().batch]]
    assert order == ([waiting, swapped] if priority else [swapped, waiting])


def test_several_come_back_from_host_memory_in_one_step():
    engine = make_engine(num_blocks=8, num_host_blocks=8, preemption_mode="swap")
    pair = [ask_and_finish(engine, tokens(6, start)) for start in (100, 300)]
    engine.controls.set_limit(1)
    engine.controls.set_limit(None)
    for seq_id in pair:
        ask(engine, [7], seq_id=seq_id)
    assert [seq_id for seq_id, _ in batch(engine)] == pair


@pytest.mark.parametrize(
    ("computed", "added", "limit", "comes"),
    [(7, 1, 4, True), (8, 1, 4, False), (8, 9, 5, True)],
)
def test_beside_others_one_comes_back_where_its_next_token_has_a_block(computed, added, limit, comes):
    engine = make_engine(num_blocks=8, num_host_blocks=8, preemption_mode="swap", enable_prefix_caching=False)
    swapped = engine.sequences[ask_and_finish(engine, tokens(computed))]
    engine.controls.set_limit(1)
    engine.controls.set_limit(limit)
    ask(engine, tokens(6, 300), max_tokens=2)  # it has two blocks
    engine.step()
    ask(engine, tokens(added, 500), seq_id=swapped.seq_id)
    small = engine.sequences[ask(engine, tokens(2, 700))]
    assert (swapped.status, swapped.num_computed) == ("swapped", computed)
    engine.step()
    assert (swapped.status != "swapped") is comes
    assert comes or small.status == "waiting", "nobody passes it"


def test_alone_one_comes_back_with_blocks_for_all_its_tokens():
    engine = make_engine(num_blocks=6, num_host_blocks=8, preemption_mode="swap")
    swapped = ask_and_finish(engine, tokens(8))
    engine.controls.set_limit(1)
    engine.controls.set_limit(None)
    parked = ask_and_finish(engine, tokens(9, 300))
    ask(engine, tokens(12, 500), seq_id=swapped)
    report = engine.step()
    assert [(entry.seq_id, entry.num_prefill) for entry in report.batch] == [(swapped, 13)]
    assert [event.seq_id for event in kinds(report.events, ev.SequencePreempted)] == [parked]


# --- pins -------------------------------------------------------------------------------------------


def test_pinned_blocks_count_for_one_that_finds_them_and_has_to_wait_for_no_others():
    engine = make_engine(num_blocks=3)
    engine.close(ask_and_finish(engine, tokens(8)))
    for block_id in (0, 1):
        engine.controls.pin(block_id)
    finder = ask_and_finish(engine, tokens(9))
    assert engine.sequences[finder].num_cached_tokens == 8
    assert engine.sequences[finder].finish_reason == "length"


def test_pinned_blocks_count_for_one_that_comes_back_to_them():
    engine = make_engine(num_blocks=4, num_host_blocks=4, preemption_mode="swap")
    seq = ask_and_finish(engine, tokens(12))
    engine.controls.set_limit(1)
    engine.controls.set_limit(None)
    [left] = engine.blocks.pool.cached_blocks
    engine.controls.pin(left)
    ask(engine, [7], seq_id=seq)
    finish(engine)
    assert engine.sequences[seq].finish_reason == "length"
    assert left in engine.sequences[seq].block_table


# --- taking blocks back -----------------------------------------------------------------------------


def test_one_that_was_scheduled_and_gives_its_blocks_in_the_same_step_is_not_in_its_batch():
    engine = make_engine(num_blocks=6, max_num_batched_tokens=5)
    decodes = ask(engine, tokens(4), max_tokens=20)
    for _ in range(4):
        engine.step()
    first = engine.open(priority=1)
    ask(engine, tokens(16, 300), max_tokens=2, seq_id=first)
    assert [batch(engine) for _ in range(3)] == [[(decodes, 1), (first, 4)]] * 3
    report = engine.step()
    assert [(entry.seq_id, entry.num_prefill) for entry in report.batch] == [(first, 4)]
    [taken] = kinds(report.events, ev.SequencePreempted)
    assert (taken.seq_id, taken.for_seq_id, taken.status) == (decodes, first, "waiting")
    finish(engine)
    assert engine.sequences[decodes].output_token_ids == expected_reply(tokens(4), VOCAB, 20)


def test_a_decode_takes_a_block_for_one_token_only():
    engine = make_engine(num_blocks=40, block_size=1)
    seqs = [engine.sequences[ask(engine, tokens(3, start), max_tokens=9)] for start in (100, 300)]
    engine.step()
    ask(engine, tokens(5, 500), max_tokens=3)  # so that these two are in no run
    while engine.has_work:
        engine.step()
        assert all(len(seq.block_table) == seq.num_computed for seq in seqs)
