"""The user's hand on the pool: limits, pins and evictions, what they do and what they refuse."""

import pytest

from pagedchat import cache_events as ev
from pagedchat.errors import RequestError
from tests.engine.kv_simulator import expected_reply
from tests.engine.test_core import VOCAB, ask, ask_and_finish, finish, kinds, make_engine, tokens


def closed_prompt(engine, length=8, start=100) -> list[int]:
    """Run a prompt and close its sequence; its full blocks stay cached."""
    seq = ask_and_finish(engine, tokens(length, start))
    table = list(engine.sequences[seq].block_table)
    engine.close(seq)
    engine.flush()
    return table


# --- the limit --------------------------------------------------------------------------------------


def test_a_limit_withholds_free_blocks_first_and_then_cached_ones():
    engine = make_engine(num_blocks=6)
    closed_prompt(engine)  # blocks 0 and 1 are cached, 2 to 5 free
    change = engine.controls.set_limit(1)
    assert change.num_withheld == 5
    assert change.preempted == []
    report = engine.flush()
    assert report.events == [ev.BlockEvicted(1, "limit"), ev.BlocksWithheld([1, 2, 3, 4, 5])]
    assert (report.pool.free, report.pool.cached, report.pool.in_use, report.pool.withheld) == (0, 1, 0, 5)
    assert engine.blocks.pool.num_available == 1


def test_raising_and_lifting_a_limit_returns_blocks_in_the_opposite_order():
    engine = make_engine(num_blocks=6)
    engine.controls.set_limit(2)
    engine.flush()
    assert engine.controls.limit == 2
    engine.controls.set_limit(2)
    assert engine.flush() is None, "nothing has changed"
    engine.controls.set_limit(4)
    assert engine.flush().events == [ev.BlocksReturned([3, 2])]
    engine.controls.set_limit(None)
    assert engine.flush().events == [ev.BlocksReturned([1, 0])]
    assert engine.controls.limit is None
    assert engine.blocks.pool.num_available == 6
    engine.controls.set_limit(6)
    assert (engine.controls.limit, engine.flush()) == (6, None)


@pytest.mark.parametrize("mode", ["recompute", "swap"])
def test_a_limit_takes_blocks_from_parked_sequences_and_then_from_the_newest_that_runs(mode):
    engine = make_engine(num_blocks=9, num_host_blocks=9, preemption_mode=mode)
    parked = ask_and_finish(engine, tokens(8, 300))
    first, second = (ask(engine, tokens(8, start), max_tokens=12) for start in (100, 500))
    for _ in range(3):
        engine.step()
    change = engine.controls.set_limit(5)
    assert change.preempted == [parked, second]
    taken = kinds(engine.flush().events, ev.SequencePreempted)
    assert [(event.seq_id, event.mode, event.for_seq_id) for event in taken] == [
        (parked, mode, parked), (second, mode, second)
    ]  # fmt: skip
    finish(engine)
    assert engine.sequences[first].output_token_ids == expected_reply(tokens(8), VOCAB, 12)
    assert engine.sequences[second].output_token_ids == expected_reply(tokens(8, 500), VOCAB, 12)


def test_a_sequence_that_needs_more_than_the_limit_waits_and_others_pass_it():
    engine = make_engine(num_blocks=8)
    engine.controls.set_limit(2)
    large, small = ask(engine, tokens(16)), ask(engine, tokens(6, 300))
    finish(engine)
    assert engine.sequences[small].status == "parked"
    assert engine.sequences[large].status == "waiting"
    assert engine.scheduler.held_back == [engine.sequences[large]]
    assert engine.sequences[small].block_table, "nobody gives blocks to one that they do not help"
    engine.controls.set_limit(None)
    assert engine.has_work
    finish(engine)
    assert engine.sequences[large].output_token_ids == expected_reply(tokens(16), VOCAB, 1)


@pytest.mark.parametrize("mode", ["recompute", "swap"])
def test_a_sequence_that_outgrows_the_limit_gives_its_blocks_and_waits(mode):
    engine = make_engine(num_blocks=8, num_host_blocks=8, preemption_mode=mode)
    engine.controls.set_limit(3)
    seq = ask(engine, tokens(6), max_tokens=20)
    finish(engine)
    sequence = engine.sequences[seq]
    assert (len(sequence), sequence.status) == (13, "waiting" if mode == "recompute" else "swapped")
    assert engine.scheduler.held_back == [sequence]
    assert engine.blocks.pool.num_in_use == 0
    assert engine.stats().preemptions == 1
    assert not engine.has_work
    engine.controls.set_limit(None)
    finish(engine)
    assert sequence.output_token_ids == expected_reply(tokens(6), VOCAB, 20)


def test_a_stalled_engine_counts_no_steps_and_does_nothing():
    engine = make_engine(num_blocks=4)
    engine.controls.set_limit(1)
    ask(engine, tokens(9))
    engine.flush()
    report = engine.step()
    held = ev.SequenceHeld(1, "limit", 3, 1)
    assert (report.step, report.batch, report.events) == (0, [], [held])
    assert not engine.has_work
    assert engine.runner.batch_sizes == []


def test_an_engine_with_one_block_keeps_its_word():
    engine = make_engine(num_blocks=8)
    engine.controls.set_limit(1)
    served, stuck = ask(engine, tokens(2), max_tokens=2), ask(engine, tokens(3, 300), max_tokens=9)
    finish(engine)
    assert engine.sequences[served].finish_reason == "length"
    assert (engine.sequences[stuck].status, len(engine.sequences[stuck])) == ("waiting", 5)


@pytest.mark.parametrize("verb", ["stop", "close"])
def test_verbs_on_a_sequence_that_is_held_back_wake_the_engine(verb):
    engine = make_engine(num_blocks=8)
    engine.controls.set_limit(2)
    stuck = ask(engine, tokens(16))
    finish(engine)
    getattr(engine, verb)(stuck)
    assert not engine.has_work
    assert engine.sequences[ask_and_finish(engine, tokens(4))].finish_reason == "length"


@pytest.mark.parametrize("num_blocks", [0, -1, 17])
def test_impossible_limits_are_refused(num_blocks):
    engine = make_engine(num_blocks=16)
    with pytest.raises(RequestError) as caught:
        engine.controls.set_limit(num_blocks)
    assert caught.value.message == f"The limit {num_blocks} is not possible."
    assert caught.value.hint == "Give a number from 1 to 16, or off."
    assert engine.flush() is None
    assert engine.controls.limit is None


def test_a_limit_below_what_is_pinned_is_refused():
    engine = make_engine(num_blocks=6)
    for block_id in closed_prompt(engine):
        engine.controls.pin(block_id)
    with pytest.raises(RequestError) as caught:
        engine.controls.set_limit(1)
    assert caught.value.message == "The limit 1 is less than the 2 blocks that are pinned."
    assert "Unpin" in caught.value.hint
    engine.controls.set_limit(2)
    assert engine.blocks.pool.num_available == 0


# --- pins -------------------------------------------------------------------------------------------


def test_a_pinned_block_outlives_whatever_comes_and_is_found_again():
    engine = make_engine(num_blocks=5)
    first, second = closed_prompt(engine)
    engine.controls.pin(first)
    report = engine.flush()
    assert report.events == [ev.BlockPinned(first)]
    assert (report.pool.cached, report.pool.pinned) == (2, 1)
    assert engine.blocks.pool.num_available == 4
    engine.close(ask_and_finish(engine, tokens(16, 300)))
    assert first in engine.blocks.cache
    assert engine.blocks.cache.entry(second).token_ids[0] >= 300, "it was evicted, and taken"
    assert engine.sequences[ask_and_finish(engine, tokens(8))].num_cached_tokens == 4


def test_an_unpinned_block_is_the_last_to_be_evicted():
    engine = make_engine(num_blocks=5)
    first, second = closed_prompt(engine)
    engine.controls.pin(second)
    assert engine.controls.unpin(second) == [second]
    assert list(engine.blocks.pool.cached_blocks) == [first, second]
    engine.controls.pin(first)
    engine.controls.pin(second)
    assert engine.controls.unpin(first) == [first]
    assert list(engine.blocks.pool.pinned) == [second]
    engine.controls.pin(first)
    assert engine.controls.unpin() == [second, first]
    assert engine.controls.unpin() == []
    assert engine.blocks.pool.num_idle_pinned == 0
    engine.check_integrity()


def test_a_block_pinned_while_in_use_stays_when_it_is_dropped():
    engine = make_engine(num_blocks=5)
    seq = ask_and_finish(engine, tokens(8))
    engine.controls.pin(0)
    assert engine.blocks.pool.num_idle_pinned == 0
    engine.close(seq)
    assert list(engine.blocks.pool.cached_blocks) == [1]
    assert engine.blocks.pool.num_idle_pinned == 1
    engine.check_integrity()


def test_where_everything_is_pinned_a_sequence_waits_for_the_user():
    engine = make_engine(num_blocks=3)
    blocks = closed_prompt(engine)
    for block_id in blocks:
        engine.controls.pin(block_id)
    stuck = ask(engine, tokens(5, 300))
    finish(engine)
    assert engine.sequences[stuck].status == "waiting"
    engine.controls.unpin(blocks[0])
    finish(engine)
    assert engine.sequences[stuck].finish_reason == "length"


def test_a_pinned_block_is_never_written_in_place():
    engine = make_engine(num_blocks=3)
    seq = ask_and_finish(engine, tokens(8))
    engine.controls.pin(1)
    engine.rewind(seq, 6)
    engine.controls.set_limit(2)
    ask(engine, [], seq_id=seq)
    finish(engine)
    assert engine.sequences[seq].status == "waiting"
    assert engine.scheduler.held_back == [engine.sequences[seq]]
    assert 1 in engine.blocks.cache
    engine.controls.unpin()
    finish(engine)
    assert engine.sequences[seq].output_token_ids == expected_reply(tokens(6), VOCAB, 1)


def test_blocks_that_cannot_be_found_are_not_pinned():
    engine = make_engine(num_blocks=6)
    ask_and_finish(engine, tokens(6))
    ask_and_finish(engine, tokens(4, 200))
    engine.controls.set_limit(5)
    withheld = engine.blocks.pool.withheld[0]
    engine.controls.pin(0)
    for block_id, why in [
        (1, "it is not full yet, or its tokens are found in another block already"),
        (4, "it is free, with nothing in it to keep"),
        (withheld, "the limit withholds it"),
    ]:
        with pytest.raises(RequestError) as caught:
            engine.controls.pin(block_id)
        assert caught.value.message == f"Block {block_id} cannot be pinned: {why}."
        assert caught.value.hint
    with pytest.raises(RequestError, match=r"Block 0 is pinned already\."):
        engine.controls.pin(0)


def test_without_prefix_caching_there_is_nothing_to_pin():
    engine = make_engine(num_blocks=6, enable_prefix_caching=False)
    ask_and_finish(engine, tokens(6))
    with pytest.raises(RequestError) as caught:
        engine.controls.pin(0)
    why = "prefix caching is off, so nothing is found again"
    assert caught.value.message == f"Block 0 cannot be pinned: {why}."


def test_unpinning_what_is_not_pinned_says_what_is():
    engine = make_engine(num_blocks=6)
    closed_prompt(engine)
    with pytest.raises(RequestError) as caught:
        engine.controls.unpin(3)
    assert (caught.value.message, caught.value.hint) == ("Block 3 is not pinned.", "No block is pinned.")
    engine.controls.pin(1)
    with pytest.raises(RequestError) as caught:
        engine.controls.unpin(3)
    assert caught.value.hint == "Pinned are 1."


@pytest.mark.parametrize(("num_pinned", "ending"), [(2, ""), (12, ""), (13, " and others"), (14, " and others")])
def test_of_many_pinned_blocks_the_first_dozen_is_named(num_pinned, ending):
    engine = make_engine(num_blocks=16)
    closed_prompt(engine, length=4 * num_pinned)
    for block_id in reversed(range(num_pinned)):
        engine.controls.pin(block_id)
    with pytest.raises(RequestError) as caught:
        engine.controls.unpin(15)
    named = ", ".join(str(block_id) for block_id in range(min(num_pinned, 12)))
    assert caught.value.hint == f"Pinned are {named}{ending}."


# --- eviction ---------------------------------------------------------------------------------------


def test_an_evicted_block_is_free_and_not_found_any_more():
    engine = make_engine(num_blocks=6)
    first, second = closed_prompt(engine)
    engine.controls.evict(second)
    report = engine.flush()
    assert report.events == [ev.BlockEvicted(second, "hand")]
    assert (report.pool.free, report.pool.cached, report.counters.evictions) == (5, 1, 1)
    assert engine.blocks.pool.free_blocks[-1] == second
    assert first in engine.blocks.cache


def test_flush_evicts_all_that_is_not_pinned():
    engine = make_engine(num_blocks=6)
    _, block_id = closed_prompt(engine)
    engine.controls.pin(block_id)
    assert engine.controls.flush() == 1
    assert engine.controls.flush() == 0
    assert list(engine.blocks.cache.block_ids) == [block_id]


def test_blocks_that_are_not_cached_are_not_evicted():
    engine = make_engine(num_blocks=8)
    pinned = closed_prompt(engine)[0]
    engine.controls.pin(pinned)
    used = engine.sequences[ask_and_finish(engine, tokens(4, 300))].block_table[0]
    shared = engine.sequences[seq := ask_and_finish(engine, tokens(3, 500))].block_table[0]
    engine.fork(seq)
    engine.controls.set_limit(7)
    for block_id, why in [
        (pinned, "it is pinned"),
        (used, "it is in use by 1 chat"),
        (shared, "it is in use by 2 chats"),
        (engine.blocks.pool.free_blocks[0], "it is free already"),
        (engine.blocks.pool.withheld[0], "the limit withholds it"),
    ]:
        with pytest.raises(RequestError) as caught:
            engine.controls.evict(block_id)
        assert caught.value.message == f"Block {block_id} cannot be evicted: {why}."
        assert caught.value.hint


@pytest.mark.parametrize("what", ["pin", "unpin", "evict"])
@pytest.mark.parametrize("block_id", [-1, 16])
def test_block_numbers_out_of_range_are_refused_with_the_range(what, block_id):
    engine = make_engine(num_blocks=16)
    with pytest.raises(RequestError) as caught:
        getattr(engine.controls, what)(block_id)
    assert caught.value.message == f"There is no block {block_id}."
    assert caught.value.hint == "Blocks are numbered from 0 to 15."
