"""Why a sequence waits: told when it changes, and true of the moment at which it was told."""

from pagedchat import cache_events as ev
from tests.engine.test_causes import ask_and_finish
from tests.engine.test_core import ask, finish, kinds, make_engine, tokens


def held(report):
    return [
        (event.seq_id, event.cause, event.num_needed, event.num_there)
        for event in kinds(report.events, ev.SequenceHeld)
    ]


def test_a_limit_that_leaves_too_few_blocks_is_told_once():
    engine = make_engine(num_blocks=8)
    engine.controls.set_limit(1)
    large = ask(engine, tokens(16))
    assert held(engine.step()) == [(large, "limit", 4, 1)]
    small = ask(engine, tokens(3, 500))
    assert held(engine.step()) == [], "it still is so"
    finish(engine)
    assert engine.sequences[small].status == "parked"
    engine.controls.set_limit(3)
    assert held(engine.step()) == [(large, "limit", 4, 3)]
    engine.controls.set_limit(None)
    engine.step()
    assert engine.sequences[large].held is None


def test_pins_and_both_are_told_apart():
    engine = make_engine(num_blocks=8)
    engine.close(ask_and_finish(engine, tokens(8)))
    for block_id in engine.blocks.cache.block_ids:
        engine.controls.pin(block_id)
    seq = ask(engine, tokens(27, 500))
    assert held(engine.step()) == [(seq, "pins", 7, 6)]
    engine.controls.set_limit(5)
    assert held(engine.step()) == [(seq, "limit and pins", 7, 3)]


def test_blocks_that_those_who_run_need_are_counted_anew():
    engine = make_engine(num_blocks=6)
    ask(engine, tokens(8), max_tokens=8)
    engine.step()
    late = ask(engine, tokens(15, 500))
    first = held(engine.step())
    assert [row[:3] for row in first] == [(late, "blocks", 4)]
    assert first[0][3] == engine.blocks.pool.num_available
    told = [row for _ in range(5) for row in held(engine.step())]
    assert told
    assert all(row[3] < 4 for row in told)
    finish(engine)
    assert engine.sequences[late].finish_reason == "length"


def test_seats_batch_and_a_prompt_that_another_computes():
    engine = make_engine(max_num_seqs=1)
    ask(engine, tokens(4), max_tokens=4)
    second = ask(engine, tokens(4, 500))
    assert held(engine.step()) == [(second, "seats", 0, 1)]
    engine = make_engine(max_num_batched_tokens=4)
    ask(engine, tokens(4), max_tokens=4)
    second = ask(engine, tokens(4, 500))
    assert held(engine.step()) == [(second, "batch", 0, 4)]
    engine = make_engine()
    ask(engine, tokens(9))
    second = ask(engine, tokens(9))
    assert held(engine.step()) == [(second, "prompt", 0, 0)]


def test_a_reason_that_nobody_asked_about_again_has_passed_but_not_that_of_a_limit():
    engine = make_engine(num_blocks=8, max_num_seqs=1)
    engine.controls.set_limit(4)
    large = ask(engine, tokens(20))
    runs = ask(engine, tokens(3, 500), max_tokens=6)
    engine.step()
    assert engine.sequences[large].held.cause == "limit"
    assert held(engine.step()) == [], "there is no seat, and the limit is what it was"
    engine.controls.set_limit(8)
    assert held(engine.step()) == [(large, "seats", 0, 1)], "the first in the queue is asked"
    engine.stop(runs)
    engine.step()
    assert engine.sequences[large].held is None


def test_who_was_closed_or_stopped_is_spoken_of_no_more():
    engine = make_engine(num_blocks=8)
    engine.controls.set_limit(1)
    closed, stopped = ask(engine, tokens(16)), ask(engine, tokens(16, 500))
    engine.step()
    engine.close(closed)
    engine.stop(stopped)
    assert engine.sequences[stopped].held is None
    ask(engine, tokens(3, 700))
    assert held(engine.step()) == []


def test_who_is_not_asked_any_more_waits_for_its_turn():
    engine = make_engine(num_blocks=6)
    ask(engine, tokens(8), max_tokens=12)
    engine.step()
    first = ask(engine, tokens(15, 500))
    assert [row[:3] for row in held(engine.step())] == [(first, "blocks", 4)]
    focused = engine.open(priority=1)
    ask(engine, tokens(15, 900), seq_id=focused)
    assert [row[:3] for row in held(engine.step())] == [(focused, "blocks", 4), (first, "turn", 0)]
    engine.step()
    assert engine.sequences[first].held.cause == "turn"
