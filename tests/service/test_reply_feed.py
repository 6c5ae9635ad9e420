"""What a step brings to each session: whose reply it is, and when a reply is over."""

import pytest

from pagedchat import cache_events as ce
from pagedchat import events as ev
from pagedchat.engine.limits import EngineLimits
from pagedchat.engine.output import ModelRunnerOutput, SchedulerOutput
from pagedchat.service import commands as cmd
from pagedchat.service.publisher import INTERVAL
from tests.fakes import FakeModelRunner, byte_tokenizer, reciting
from tests.service.engine_rig import EngineRig, ask
from tests.service.fake_engine import BLOCK_SIZE


def test_text_that_was_held_back_for_a_stop_string_comes_before_the_end() -> None:
    runner = FakeModelRunner(reciting(byte_tokenizer(), "one STOP", "<|assistant|>"), BLOCK_SIZE)
    rig = EngineRig(runner)
    rig.send(ask(1, 10, "Count", stop=["STOP"], max_tokens=len("one STO")))
    rig.run_dry()
    assert rig.text(10) == "one STO"
    assert rig.finished(10).reason == "length"
    told = [event for event in rig.events if isinstance(event, ev.TextDelta | ev.RequestFinished)]
    assert isinstance(told[-1], ev.RequestFinished)


def test_a_reply_ends_once() -> None:
    rig = EngineRig()
    rig.send(ask(1, 10, "Hi", max_tokens=3))
    rig.run_dry()
    num_events = len(rig.events)
    for session_id in (1, 99):
        rig.loop.chats.feed.finish(session_id, "abort")
    assert len(rig.events) == num_events
    assert rig.finished(10).reason == "length"


def test_a_prompt_in_pieces_says_nothing_before_its_last_piece() -> None:
    limits = EngineLimits(
        num_blocks=100,
        block_size=BLOCK_SIZE,
        model_len=400,
        max_num_batched_tokens=16,
        eos_token_ids=frozenset({1}),
    )
    rig = EngineRig(limits=limits)
    rig.send(ask(1, 10, "x" * 40, max_tokens=2))
    rig.step(2)
    assert rig.of(ev.TextDelta) == []
    rig.run_dry()
    assert rig.finished(10).num_tokens == 2


def test_the_end_of_the_last_reply_does_not_end_the_next_one() -> None:
    rig = EngineRig()
    rig.send(ask(2, 20, "Ho", max_tokens=1), ask(1, 10, "Hi"))
    rig.step(3)
    rig.send(cmd.Stop(1), ask(1, 11, "Hi", rig.text(10), "More", max_tokens=4))
    rig.step()
    parked = [
        e.seq_id for s in rig.of(ev.Steps) for r in s.reports for e in r.events if isinstance(e, ce.SequenceParked)
    ]
    assert parked.count(1) == 1
    assert rig.of(ev.RequestFinished, 11) == []
    rig.run_dry()
    assert [rig.finished(i).reason for i in (10, 11)] == ["abort", "length"]
    assert rig.finished(11).num_tokens == 4


def test_a_step_in_which_nothing_is_due_tells_no_text_and_the_next_publication_all_of_it() -> None:
    rig = EngineRig()
    rig.send(ask(1, 10, "Hi", max_tokens=30), ask(2, 20, "Ho", max_tokens=30))
    rig.step(2)
    rig.publisher.flush()
    told = len(rig.events)
    for _ in range(6):
        rig.loop.step()  # no time passes
    assert len(rig.events) == told
    rig.clock.advance(INTERVAL)
    rig.step(4)
    deltas = [event for event in rig.events[told:] if isinstance(event, ev.TextDelta)]
    assert [(delta.request_id, delta.num_tokens) for delta in deltas] == [(10, 9), (20, 9)]
    assert [len(rig.text(request_id)) for request_id in (10, 20)] == [9, 9]


@pytest.mark.parametrize("seconds", [0.0, 0.01, 1.0])
def test_a_stop_string_ends_the_reply_at_its_step_however_seldom_text_is_told(seconds: float) -> None:
    runner = FakeModelRunner(reciting(byte_tokenizer(), "one two\nthree STOP four", "<|assistant|>"), BLOCK_SIZE)
    rig = EngineRig(runner)
    rig.send(ask(1, 10, "Count", stop=["STOP"], max_tokens=60), ask(2, 20, "Count", max_tokens=60))
    while not rig.of(ev.RequestFinished, 10):
        rig.clock.advance(seconds)
        rig.loop.step()
    assert rig.finished(10).num_tokens == len("one two\nthree STOP")
    assert rig.core.sequences[1].status == "parked"
    assert rig.text(10) == "one two\nthree "
    rig.run_dry()
    assert rig.finished(20).num_tokens == 60
    assert rig.text(20).startswith("one two\nthree STOP four")


def test_text_that_had_come_is_told_before_the_engine_fails() -> None:
    rig = EngineRig()
    rig.send(ask(1, 10, "Hi"))
    rig.step()
    for _ in range(5):
        rig.loop.step()  # no time passes
    rig.loop.chats.fail_all("It broke.", "Ask again.")
    assert len(rig.text(10)) == 6
    assert isinstance(rig.events[-1], ev.RequestFailed)


def test_text_that_had_come_is_told_before_a_request_fails_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    rig = EngineRig()
    rig.send(ask(1, 10, "Hi"), ask(2, 20, "Ho", max_tokens=20))
    rig.step()
    for _ in range(5):
        rig.loop.step()  # no time passes
    execute = rig.loaded.runner.execute

    def failing(batch: SchedulerOutput) -> ModelRunnerOutput:
        if any(part.sequence.seq_id == 1 for part in batch.scheduled):
            raise ValueError("not a number")
        return execute(batch)

    monkeypatch.setattr(rig.loaded.runner, "execute", failing)
    rig.loop.step()
    assert len(rig.text(10)) == 6
    assert "not a number" in rig.of(ev.RequestFailed, 10)[0].message
    rig.run_dry()
    assert rig.finished(20).num_tokens == len(rig.text(20)) == 20
