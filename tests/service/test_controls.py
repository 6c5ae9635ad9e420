"""The user's hand on the pool and on the pace, through the loop: what is done, and what is said about it."""

import json
from pathlib import Path

import pytest

from pagedchat import events as ev
from pagedchat.engine import keyframe
from pagedchat.engine.limits import EngineLimits
from pagedchat.service import commands as cmd
from pagedchat.service.loop import MAX_PACE, EngineLoop, Received
from pagedchat.view.sentences.waiting import cure_words
from tests.engine.checks import assert_mirror_equals
from tests.service.engine_rig import EngineRig, ask
from tests.service.fake_engine import BLOCK_SIZE

LIMITS = EngineLimits(num_blocks=20, block_size=BLOCK_SIZE, model_len=80, eos_token_ids=frozenset({1}))


def small_rig() -> EngineRig:
    return EngineRig(limits=LIMITS)


def notices(rig: EngineRig) -> list[tuple[str, str, bool]]:
    return [(event.message, event.hint, event.failed) for event in rig.of(ev.EngineNotice)]


def cached_blocks(rig: EngineRig) -> list[int]:
    """Blocks that a closed chat left behind."""
    rig.send(ask(9, 90, "Hello Hello", max_tokens=2))
    rig.run_dry()
    rig.send(cmd.Close(9))
    return list(rig.core.blocks.pool.cached_blocks)


# --- the limit --------------------------------------------------------------------------------------


def test_a_limit_is_told_in_words_and_as_the_state_after_what_it_did():
    rig = small_rig()
    rig.send(ask(1, 10, "Hello Hello"), ask(2, 20, "Hello there"))
    rig.step(3)
    rig.send(cmd.SetLimit(6))
    assert notices(rig) == [("Limit 6: 14 blocks withheld, 1 chat preempted.", "", False)]
    assert rig.events[-2] == ev.RunState(False, 0.0, 6)
    assert len(rig.mirror().withheld) == 14
    rig.send(cmd.SetLimit(None))
    assert rig.events[-2:] == [ev.RunState(False), ev.EngineNotice("No limit: all 20 blocks can be used.")]
    assert rig.mirror().withheld == {}


def test_a_refused_limit_changes_no_state():
    rig = small_rig()
    rig.send(cmd.SetLimit(0))
    assert notices(rig) == [("The limit 0 is not possible.", "Give a number from 1 to 20, or off.", True)]
    assert rig.of(ev.RunState) == []


def test_chats_that_the_limit_holds_back_say_so_themselves_and_run_when_it_is_lifted():
    rig = small_rig()
    rig.send(cmd.SetLimit(2), *(ask(i, 10 * i, "Hello Hello", max_tokens=2) for i in (1, 2, 3)))
    rig.step()
    assert not rig.loop.may_step
    rig.publisher.flush()
    assert {seq.held.cause for seq in rig.mirror().sequences.values() if seq.held} == {"limit"}
    rig.send(cmd.Stop(3))
    rig.step()
    assert len(notices(rig)) == 1, "the answer to the command, and no word of what the chats say"
    rig.send(cmd.SetLimit(None))
    rig.run_dry()
    assert [rig.finished(i).reason for i in (10, 20)] == ["length", "length"]


def test_a_limit_is_obeyed_while_paused():
    rig = small_rig()
    rig.send(cmd.Pause(), ask(1, 10, "Hi"), cmd.SetLimit(3))
    assert rig.events[-2] == ev.RunState(True, 0.0, 3)
    assert len(rig.mirror().withheld) == 17
    assert rig.core.stats().steps == 0


# --- pins and evictions -----------------------------------------------------------------------------


def test_pins_and_evictions_are_answered():
    rig = small_rig()
    first, second, *rest = cached_blocks(rig)
    rig.send(cmd.Pin(first), cmd.Pin(second), cmd.Unpin(first), cmd.Unpin(), cmd.Unpin())
    rig.send(cmd.Evict(second), cmd.FlushCache(), cmd.FlushCache())
    count = len(rest) + 1
    assert [message for message, _, failed in notices(rig) if not failed] == [
        f"Block {first} is pinned: it is not evicted.",
        f"Block {second} is pinned: it is not evicted.",
        f"Block {first} is not pinned any more.",
        f"Block {second} is not pinned any more.",
        "No block was pinned.",
        f"Block {second} is evicted and free.",
        f"{count} cached block{'s' if count > 1 else ''} evicted.",
        "No block was cached.",
    ]
    assert rig.mirror().next_out(20) == rig.core.blocks.pool.free_blocks[::-1]


@pytest.mark.parametrize("command", [cmd.Pin(99), cmd.Unpin(99), cmd.Evict(99)])
def test_commands_on_blocks_that_do_not_exist_are_refused(command):
    rig = small_rig()
    rig.send(command)
    assert notices(rig) == [("There is no block 99.", "Blocks are numbered from 0 to 19.", True)]


def test_chats_that_pins_hold_back_say_so_and_run_without_them():
    rig = small_rig()
    for block_id in cached_blocks(rig):
        rig.send(cmd.Pin(block_id))
    num_pinned = len(rig.core.blocks.pool.pinned)
    rig.send(ask(1, 10, "x" * 66, max_tokens=1))
    rig.step()
    rig.publisher.flush()
    held = rig.mirror().sequences[1].held
    assert held is not None
    assert (held.num_needed, held.num_there) == (18, 20 - num_pinned)
    assert cure_words(held, rig.mirror()) == "more with /unpin"
    rig.send(cmd.SetLimit(19))
    rig.step()
    rig.publisher.flush()
    held = rig.mirror().sequences[1].held
    assert cure_words(held, rig.mirror()) == "more with /limit off or /unpin"
    rig.send(cmd.Unpin())
    rig.run_dry()
    assert rig.finished(10).reason == "length"


# --- slow motion ------------------------------------------------------------------------------------


def test_slow_motion_waits_between_steps_and_says_so():
    rig = EngineRig()
    rig.send(cmd.SetPace(0.5), ask(1, 10, "Hi"))
    assert rig.events[0] == ev.RunState(False, 0.5, None)
    assert rig.loop.seconds_to_step() == 0
    rig.step()
    assert rig.loop.seconds_to_step() == pytest.approx(0.5)
    rig.clock.advance(0.3)
    assert rig.loop.seconds_to_step() == pytest.approx(0.2)
    rig.send(cmd.SetPace(0))
    assert rig.loop.seconds_to_step() == 0
    assert rig.events[-1] == ev.RunState(False, 0.0, None)


def test_nothing_is_waited_for_but_a_command_when_there_is_nothing_to_do():
    rig = EngineRig()
    rig.send(cmd.SetPace(0.5))
    assert rig.loop.seconds_to_step() is None
    rig.send(cmd.Pause(), ask(1, 10, "Hi"))
    assert rig.loop.seconds_to_step() is None


@pytest.mark.parametrize(("asked", "got"), [(-1.0, 0.0), (float("nan"), 0.0), (float("inf"), MAX_PACE)])
def test_impossible_paces_are_brought_into_range(asked, got):
    rig = EngineRig()
    rig.send(cmd.SetPace(asked))
    assert rig.events == [ev.RunState(False, got, None)]


def test_commands_are_obeyed_at_once_in_slow_motion():
    rig = EngineRig()
    loop = EngineLoop(rig.core, rig.loop.chats, rig.loop.programs, rig.publisher, rig.inbox)
    for command in (cmd.SetPace(30), ask(1, 10, "Hi")):
        loop.handle(Received(command, 0.0))
    loop.step()
    rig.inbox.put(Received(cmd.Shutdown(), 0.0))
    loop.run()
    assert rig.core.stats().steps == 1


def test_steps_go_on_by_themselves_in_slow_motion():
    rig = EngineRig()
    loop = EngineLoop(rig.core, rig.loop.chats, rig.loop.programs, rig.publisher, rig.inbox)
    step = loop.step

    def step_three_times() -> None:
        step()
        if rig.core.stats().steps == 3:
            rig.inbox.put(Received(cmd.Shutdown(), 0.0))

    loop.step = step_three_times
    for command in (cmd.SetPace(0.02), ask(1, 10, "Hi")):
        loop.handle(Received(command, 0.0))
    loop.run()
    assert rig.core.stats().steps == 3


# --- books that disagree ----------------------------------------------------------------------------


def corrupted_loop(rig: EngineRig, dump_dir) -> EngineLoop:
    loop = EngineLoop(rig.core, rig.loop.chats, rig.loop.programs, rig.publisher, rig.inbox, rig.clock, dump_dir)
    loop.handle(Received(ask(1, 10, "Hello", max_tokens=70), 0.0))
    loop.step()
    rig.core.blocks.pool.ref_counts[rig.core.sequences[1].block_table[0]] += 1
    while loop.may_step:
        loop.step()
    return loop


def test_books_that_disagree_are_told_once_with_a_dump(tmp_path):
    rig = EngineRig()
    corrupted_loop(rig, tmp_path)
    (broken,) = rig.of(ev.IntegrityBroken)
    assert "has ref count 2, but 1 entries in block tables" in broken.message
    assert Path(broken.dump).stat().st_mode & 0o777 == 0o600
    dump = json.loads(Path(broken.dump).read_text())
    assert (dump["message"], dump["report"][1]) == (broken.message, broken.step)
    assert dump["pool"]["ref_counts"][0] == 2
    assert dump["sequences"][0]["block_table"]
    assert rig.finished(10).reason == "length"


def test_a_dump_that_cannot_be_written_is_done_without(tmp_path):
    for directory in (tmp_path / "missing", None):
        rig = EngineRig()
        corrupted_loop(rig, directory)
        (broken,) = rig.of(ev.IntegrityBroken)
        assert broken.dump == ""


# --- what is told on request ------------------------------------------------------------------------


def test_sequences_are_told_with_the_steps_that_made_them_so():
    rig = small_rig()
    rig.send(ask(1, 10, "Hello Hello"), ask(2, 20, "Hello Hello"))
    rig.step(2)
    rig.send(cmd.TellSequences(1), cmd.TellSequences(-1), cmd.TellSequences(1 << 70))
    bounded, none, all_of_them = rig.of(ev.SequencesTold)
    seq = rig.core.sequences[1]
    shared = sum(rig.core.blocks.pool.ref_counts[block_id] > 1 for block_id in seq.block_table)
    own = len(seq.block_table) - shared
    assert bounded == ev.SequencesTold([ev.SequenceFigures(1, seq.status, len(seq), own, shared)], 1)
    assert shared
    assert (none.sequences, none.num_left_out) == ([], 2)
    assert ([told.seq_id for told in all_of_them.sequences], all_of_them.num_left_out) == ([1, 2], 0)
    told = rig.events.index(bounded)
    assert isinstance(rig.events[told - 1], ev.Steps | ev.TokenTexts | ev.TextDelta)
    assert not any(isinstance(event, ev.Steps) for event in rig.events[told:])


def test_the_whole_cache_is_told_and_the_next_steps_follow_on_it():
    rig = small_rig()
    rig.send(ask(1, 10, "Hello Hello"))
    rig.step(2)
    rig.send(cmd.TellCache())
    (told,) = rig.of(ev.CacheKeyframe)
    mirror = keyframe.restore(keyframe.decode(told.state))
    at = rig.events.index(told)
    rig.run_dry()
    for event in rig.events[at:]:
        for report in event.reports if isinstance(event, ev.Steps) else []:
            mirror.apply(report)
    assert_mirror_equals(mirror, rig.core)
    assert mirror.num_reports == rig.mirror().num_reports
