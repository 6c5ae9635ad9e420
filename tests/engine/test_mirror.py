import random
from typing import get_args

import msgspec
import pytest

from pagedchat import cache_events as ev
from pagedchat.engine.mirror import _FOLDS, CacheMirror
from pagedchat.step_batch import BatchEntry
from tests.engine.checks import assert_mirror_equals
from tests.engine.test_core import ask, finish, make_engine, tokens
from tests.scripted_reports import ScriptedEngine, random_workload


def fold(mirror: CacheMirror, engine) -> None:
    while engine.has_work:
        mirror.apply(engine.step())


def test_fill_and_state_follow_a_prompt_into_its_blocks():
    engine, mirror = make_engine(num_blocks=6), CacheMirror(6, 4)
    seq = ask(engine, tokens(6))
    fold(mirror, engine)
    assert [mirror.state(b) for b in range(3)] == ["in_use", "in_use", "free"]
    assert [mirror.fill(b) for b in range(3)] == [4, 2, 0]
    assert mirror.holders[:3] == [[seq], [seq], []]
    engine.close(seq)
    mirror.apply(engine.flush())
    assert [mirror.state(b) for b in range(3)] == ["cached", "free", "free"]
    assert mirror.fill(0) == 4


def test_next_out_names_the_blocks_in_the_order_in_which_they_go():
    engine, mirror = make_engine(num_blocks=5), CacheMirror(5, 4)
    for start in (100, 300):
        engine.close(_asked(engine, mirror, start))
    mirror.apply(engine.flush())
    order = mirror.next_out(5)
    assert [mirror.next_out(count) for count in range(7)] == [order[:count] for count in range(7)]
    seq = ask(engine, tokens(19, 500))
    finish(engine)
    assert engine.sequences[seq].block_table == order


def _asked(engine, mirror, start) -> int:
    seq = ask(engine, tokens(6, start))
    fold(mirror, engine)
    return seq


def test_touched_tells_which_report_changed_a_block():
    engine, mirror = make_engine(num_blocks=4), CacheMirror(4, 4)
    ask(engine, tokens(4), max_tokens=3)
    mirror.apply(engine.step())
    assert mirror.touched == {0: 1}
    mirror.apply(engine.step())
    assert mirror.touched == {0: 1, 1: 2}


def test_a_chunk_of_a_prompt_touches_the_blocks_that_it_writes_to_and_no_others():
    engine, mirror = make_engine(), CacheMirror(8, 4)
    ask(engine, tokens(17))
    report = engine.flush()
    mirror.apply(report)
    mirror.begin_report()
    for block_id in range(6):  # more than the prompt needs
        mirror.apply_event(ev.BlockAllocated(1, block_id))
    mirror.end_report(report)
    for num_tokens, written in [(3, [0]), (1, [0]), (4, [1]), (6, [2, 3]), (2, [3]), (1, [4])]:
        report = msgspec.structs.replace(report, events=[], batch=[BatchEntry(1, num_tokens, 0, [])])
        mirror.apply(report)
        assert sorted(mirror.changed_since(mirror.num_reports - 1)) == written


def test_a_block_that_is_written_in_place_has_other_contents_in_the_mirror_too():
    engine, mirror = make_engine(num_blocks=3), CacheMirror(3, 4)
    seq = ask(engine, tokens(8))
    fold(mirror, engine)
    engine.rewind(seq, 6)
    engine.controls.set_limit(2)
    ask(engine, [], seq_id=seq)
    mirror.apply(engine.flush())
    report = engine.step()
    assert ev.BlockUncached(1, "write") in report.events
    mirror.apply(report)
    assert_mirror_equals(mirror, engine)
    assert mirror.changed_since(mirror.num_reports - 1) == {1}


def test_a_mirror_has_as_many_host_blocks_as_it_is_told():
    assert CacheMirror(4, 4).host_ref_counts == []
    assert CacheMirror(4, 4, 2).host_ref_counts == [0, 0]


def test_a_report_folded_event_by_event_is_the_same_as_folded_at_once():
    walk = ScriptedEngine(num_blocks=16, block_size=4, num_host_blocks=8, max_num_batched_tokens=12)
    at_once, stepwise = CacheMirror(16, 4, 8), CacheMirror(16, 4, 8)
    for _ in random_workload(walk, random.Random(5), 300):
        for report in walk.reports[at_once.num_reports :]:
            at_once.apply(report)
            stepwise.begin_report()
            for event in report.events:
                stepwise.apply_event(event)
            stepwise.end_report(report)
        assert at_once == stepwise
    assert at_once.num_reports > 100


def test_every_event_of_the_cache_has_its_fold():
    assert set(get_args(ev.CacheEvent)) <= set(_FOLDS)


@pytest.mark.parametrize("every", [1, 3, 7])
def test_changed_since_names_all_blocks_that_look_different_and_only_those_touched(every):
    walk = ScriptedEngine(num_blocks=24, block_size=4, num_host_blocks=24, max_num_batched_tokens=12)
    mirror, since, before = CacheMirror(24, 4, 24), 0, None
    for number, _ in enumerate(random_workload(walk, random.Random(every), 400)):
        for report in walk.reports[mirror.num_reports :]:
            mirror.apply(report)
        if number % every == 0:
            changed = mirror.changed_since(since)
            assert changed == {block for block, last in mirror.touched.items() if last > since}
            after = [looks(mirror, block) for block in range(24)]
            if before is not None:
                assert {block for block in range(24) if after[block] != before[block]} <= changed
            since, before = mirror.num_reports, after
    assert since > 100


def looks(mirror: CacheMirror, block: int) -> tuple:
    holders = tuple(mirror.holders[block])
    return mirror.state(block), holders, mirror.fill(block), mirror.block_hashes[block], block in mirror.pinned


def test_a_report_keeps_what_it_tells_of_a_swap_when_the_sequence_is_cut_afterwards():
    engine = make_engine(num_blocks=8, num_host_blocks=8, preemption_mode="swap")
    seq = ask(engine, tokens(12))
    finish(engine)
    engine.scheduler.swapper.swap_out(engine.sequences[seq])
    report = engine.flush()
    told = report.events[-1]
    before = list(told.host_block_ids)
    engine.rewind(seq, 0)
    assert told.host_block_ids == before != []


def test_who_waits_in_host_memory_is_forked_and_asked_there():
    engine, mirror = make_engine(num_blocks=8, num_host_blocks=8, preemption_mode="swap"), CacheMirror(8, 4, 8)
    seq = ask(engine, tokens(12))
    fold(mirror, engine)
    engine.scheduler.swapper.swap_out(engine.sequences[seq])
    first, second = engine.fork(seq), engine.fork(seq)
    mirror.apply(engine.flush())
    held = mirror.sequences[seq].host_block_table
    assert held == mirror.sequences[first].host_block_table == mirror.sequences[second].host_block_table != []
    assert [mirror.host_ref_counts[block_id] for block_id in held] == [3] * len(held)
    ask(engine, tokens(1, 900), seq_id=first)
    mirror.apply(engine.flush())
    assert mirror.sequences[first].status == "swapped"
    assert_mirror_equals(mirror, engine)
    fold(mirror, engine)
    assert_mirror_equals(mirror, engine)
