"""What the engine says of the causes of what it does, and of the tokens that a request did not have to compute."""

import pytest

from pagedchat import cache_events as ev
from tests.engine.test_core import ask, finish, kinds, make_engine, tokens


def ask_and_finish(engine, prompt, max_tokens=1, seq_id=None):
    seq_id = ask(engine, prompt, max_tokens, seq_id)
    finish(engine)
    return seq_id


# --- evictions --------------------------------------------------------------------------------------


def evictions(engine, act):
    """With three cached blocks."""
    engine.close(ask_and_finish(engine, tokens(12)))
    act()
    report = engine.flush()
    return kinds(report.events if report else finish(engine), ev.BlockEvicted)


@pytest.mark.parametrize(
    ("act", "cause", "count"),
    [
        (lambda engine: engine.controls.evict(1), "hand", 1),
        (lambda engine: engine.controls.flush(), "flush", 3),
        (lambda engine: engine.controls.set_limit(2), "limit", 1),
        (lambda engine: engine.blocks.forget_contents(1, "fault"), "fault", 1),
    ],
)
def test_an_eviction_says_who_wanted_it(act, cause, count):
    engine = make_engine(num_blocks=4)
    assert [event.cause for event in evictions(engine, lambda: act(engine))] == [cause] * count


def test_a_block_evicted_for_a_sequence_is_told_apart():
    engine = make_engine(num_blocks=4)
    engine.close(ask_and_finish(engine, tokens(12)))
    ask(engine, tokens(13, 500))
    assert [event.cause for event in kinds(finish(engine), ev.BlockEvicted)] == ["room"] * 3


# --- copies -----------------------------------------------------------------------------------------


def copies(engine):
    return [(event.cause, event.num_slots) for event in kinds(finish(engine), ev.BlockCopied)]


def test_a_copy_of_a_shared_block_says_so():
    engine = make_engine()
    first = ask_and_finish(engine, tokens(6))
    engine.fork(first)
    ask(engine, tokens(1, 900), seq_id=first)
    assert copies(engine) == [("shared", 2)]


def test_a_copy_after_a_hit_that_ended_inside_a_block_that_nobody_holds_says_so():
    engine = make_engine()
    engine.close(ask_and_finish(engine, tokens(9)))
    ask(engine, [*tokens(6), *tokens(3, 900)])
    assert copies(engine) == [("hit", 2)]


def test_a_copy_after_a_rewind_into_a_findable_block_says_so():
    engine = make_engine()
    seq = ask_and_finish(engine, tokens(9))
    engine.rewind(seq, 6)
    ask(engine, tokens(3, 900), seq_id=seq)
    assert copies(engine) == [("rewind", 2)]


def test_a_rewind_into_a_block_and_asking_for_another_token_is_still_a_rewind():
    engine = make_engine()
    seq = ask_and_finish(engine, tokens(9))
    engine.rewind(seq, 6)
    ask(engine, [], seq_id=seq)
    assert copies(engine) == [("rewind", 1)]


def test_a_last_token_that_is_computed_again_is_the_cause_where_a_block_was_full():
    engine = make_engine()
    seq = ask_and_finish(engine, tokens(9))
    engine.rewind(seq, 8)
    ask(engine, [], seq_id=seq)
    assert copies(engine) == [("again", 3)]


def test_a_fork_has_its_sources_cause():
    engine = make_engine()
    seq = ask_and_finish(engine, tokens(9))
    engine.rewind(seq, 6)
    fork = engine.fork(seq)
    ask(engine, tokens(2, 900), seq_id=seq)
    assert copies(engine) == [("shared", 2)]
    engine.close(seq)
    ask(engine, tokens(2, 700), seq_id=fork)
    assert copies(engine) == [("rewind", 2)]


# --- preemption -------------------------------------------------------------------------------------


def test_a_preemption_says_how_much_of_it_is_still_found():
    engine = make_engine(num_blocks=8)
    seq = ask_and_finish(engine, tokens(10))
    engine.controls.set_limit(7)
    assert kinds(engine.flush().events, ev.SequencePreempted) == []
    ask(engine, tokens(24, 500))
    [taken] = kinds(finish(engine), ev.SequencePreempted)
    assert (taken.seq_id, taken.num_tokens, taken.num_cached) == (seq, 10, 8)


@pytest.mark.parametrize(("limits", "expected"), [
    ({"enable_prefix_caching": False}, 0),
    ({"preemption_mode": "swap", "num_host_blocks": 8}, -1),
])  # fmt: skip
def test_without_a_cache_nothing_is_found_and_by_swap_it_is_not_asked(limits, expected):
    engine = make_engine(num_blocks=8, **limits)
    ask_and_finish(engine, tokens(10))
    ask(engine, tokens(28, 500))
    [taken] = kinds(finish(engine), ev.SequencePreempted)
    assert taken.num_cached == expected


# --- tokens that were not computed ------------------------------------------------------------------


def figures(engine, seq_id):
    """Kept and found of the last request; looked up, found and kept by all."""
    seq, stats = engine.sequences[seq_id], engine.stats()
    kept = seq.num_cached_tokens - seq.num_found_tokens
    return (kept, seq.num_found_tokens), (stats.prefix_queries, stats.prefix_hits, stats.kept_tokens)


def test_what_a_chat_kept_is_told_apart_from_what_was_found_and_is_not_looked_up():
    engine = make_engine()
    first = ask_and_finish(engine, tokens(10))
    assert figures(engine, first) == ((0, 0), (10, 0, 0))
    ask_and_finish(engine, tokens(5, 900), seq_id=first)
    assert figures(engine, first) == ((10, 0), (10, 0, 10))
    second = ask_and_finish(engine, tokens(10))
    assert figures(engine, second) == ((0, 9), (20, 9, 10))


@pytest.mark.parametrize("mode", ["recompute", "swap"])
def test_a_chat_that_loses_its_blocks_while_it_waits_has_kept_what_it_still_has(mode):
    engine = make_engine(num_blocks=8, num_host_blocks=8, preemption_mode=mode, max_num_seqs=1)
    seq = ask_and_finish(engine, tokens(16))
    ask(engine, tokens(16, 500), max_tokens=16)
    engine.step()
    ask(engine, tokens(4, 900), seq_id=seq)
    engine.told = finish(engine)
    [own] = [event for event in engine.told if isinstance(event, ev.SequencePreempted) and event.seq_id == seq]
    assert own.status == ("waiting" if mode == "recompute" else "swapped"), "it gave them while it waited"
    kept, found = figures(engine, seq)[0]
    hits = sum(event.num_tokens for event in kinds(engine.told, ev.PrefixHit) if event.seq_id == seq)
    assert (kept, found) == ((0, hits) if mode == "recompute" else (16, 0))
    assert engine.stats().kept_tokens == kept
