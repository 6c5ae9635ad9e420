"""Commands to text, in this process: what a session is told, and what its sequence holds."""

import pytest

from pagedchat import cache_events as ce
from pagedchat import events as ev
from pagedchat.engine.limits import EngineLimits
from pagedchat.service import commands as cmd
from pagedchat.service.loop import QUIET, EngineLoop, Received
from pagedchat.service.publisher import INTERVAL
from tests.fakes import FakeModelRunner, byte_tokenizer, reciting
from tests.service.engine_rig import EngineRig, ask
from tests.service.fake_engine import BLOCK_SIZE

TOKENIZER = byte_tokenizer()


def reciting_rig(text: str, **options) -> EngineRig:
    after = ":" if options.get("plain") else "<|assistant|>"
    return EngineRig(FakeModelRunner(reciting(TOKENIZER, text, after), BLOCK_SIZE), **options)


def test_prompt_streams_a_reply_and_ends():
    rig = reciting_rig("Hello 🤗!</s>")
    rig.send(ask(1, 10, "Hi"))
    rig.run_dry()
    assert rig.text(10) == "Hello 🤗!"
    prompt = "<|user|>Hi</s><|assistant|>"
    assert rig.held_text(1) == prompt + "Hello 🤗!</s>"
    num_prompt = len(TOKENIZER.encode(prompt).ids)
    assert rig.of(ev.RequestStarted) == [ev.RequestStarted(1, 10, num_prompt, 0)]
    end = rig.finished(10)
    assert (end.reason, end.num_prompt_tokens, end.num_tokens) == (
        "stop",
        num_prompt,
        len("Hello 🤗!".encode()) + 1,
    )
    assert 0 < end.time_to_first_token < end.duration
    kinds = [type(event) for event in rig.events if not isinstance(event, ev.Steps)]
    assert (kinds[0], kinds[-1]) == (ev.RequestStarted, ev.RequestFinished)


def test_next_turn_prefills_only_what_is_new():
    rig = reciting_rig("Hello!</s>")
    rig.send(ask(1, 10, "Hi"))
    rig.run_dry()
    held = len(rig.core.sequences[1])
    rig.send(ask(1, 11, "Hi", "Hello!", "And you?"))
    rig.run_dry()
    assert rig.held_text(1) == "<|user|>Hi</s><|assistant|>Hello!</s><|user|>And you?</s><|assistant|>Hello!</s>"
    (_, started) = rig.of(ev.RequestStarted)
    assert started.num_cached_tokens == held - 1  # the last token was sampled, never computed


def test_asking_again_rewinds_to_the_prompt():
    rig = reciting_rig("Hello!</s>")
    rig.send(ask(1, 10, "Hi"))
    rig.run_dry()
    rig.send(ask(1, 11, "Hi"))
    rig.run_dry()
    assert rig.text(11) == "Hello!"
    assert rig.finished(11).num_cached_tokens == rig.finished(11).num_prompt_tokens - 1
    rewound = [
        e for s in rig.of(ev.Steps) for r in s.reports for e in r.events if isinstance(e, ce.SequenceRewound)
    ]
    assert rewound == [ce.SequenceRewound(1, rig.finished(11).num_prompt_tokens)]


def test_stop_keeps_what_was_generated_and_the_next_turn_goes_on_from_it():
    rig = EngineRig()
    rig.send(ask(1, 10, "Hi"))
    rig.step(6)
    rig.send(cmd.Stop(1))
    said = rig.text(10)
    assert rig.finished(10).reason == "abort"
    assert len(said) == 6 == rig.finished(10).num_tokens
    assert not rig.core.has_work
    rig.send(ask(1, 11, "Hi", said, "More", max_tokens=3))
    rig.run_dry()
    assert rig.held_text(1).startswith(f"<|user|>Hi</s><|assistant|>{said}</s><|user|>More</s><|assistant|>")
    assert rig.finished(11).reason == "length"
    rig.core.check_integrity()


def test_an_unfinished_reply_is_continued_in_place():
    rig = reciting_rig("once upon a time</s>")
    rig.send(ask(1, 10, "Tell", max_tokens=6))
    rig.run_dry()
    assert rig.text(10) == "once u"
    rig.send(ask(1, 11, "Tell", "once u"))
    rig.run_dry()
    assert rig.text(11) == "pon a time"
    assert rig.held_text(1) == "<|user|>Tell</s><|assistant|>once upon a time</s>"


def test_stop_string_ends_the_reply_before_it():
    rig = reciting_rig("one STOP two</s>")
    rig.send(ask(1, 10, "Count", stop=["STOP"]))
    rig.run_dry()
    assert rig.text(10) == "one "
    assert rig.finished(10).reason == "stop"
    assert rig.held_text(1).endswith("one STOP")


def test_base_model_stops_where_it_begins_to_write_the_users_turn():
    rig = reciting_rig(" Hi there.\nUser: and now", plain=True)
    rig.send(ask(1, 10, "Hello"))
    rig.run_dry()
    assert rig.text(10) == "Hi there."
    assert rig.held_text(1) == "User: Hello\nAssistant: Hi there.\nUser:"
    held = len(rig.core.sequences[1])
    rig.send(ask(1, 11, "Hello", "Hi there.", "Bye"))
    assert rig.of(ev.RequestStarted, 11)[0].num_cached_tokens == held - 1


def test_text_completion_joins_the_texts():
    rig = EngineRig()
    rig.send(ask(1, 10, "abc", raw=True, max_tokens=4))
    rig.run_dry()
    assert rig.held_text(1) == "abc" + rig.text(10)


def test_stop_token_is_not_part_of_the_text():
    rig = reciting_rig("one.two</s>")
    rig.send(ask(1, 10, "Count", stop_token_ids=[TOKENIZER.token_to_id(".")]))
    rig.run_dry()
    assert rig.text(10) == "one"
    assert rig.finished(10).num_tokens == 4


def test_two_sessions_share_a_batch_and_keep_apart():
    rig = EngineRig()
    rig.send(ask(1, 10, "Hi", max_tokens=20), ask(2, 20, "Ho", max_tokens=20))
    rig.run_dry()
    assert max(len(batch) for batch in rig.loaded.runner.batches) == 2
    alone = EngineRig()
    alone.send(ask(2, 20, "Ho", max_tokens=20))
    alone.run_dry()
    assert rig.text(20) == alone.text(20) != rig.text(10)


def test_fork_in_the_middle_of_a_reply_writes_on_in_both():
    rig = EngineRig()
    rig.send(ask(1, 10, "Hi", max_tokens=20))
    rig.step(8)
    rig.send(cmd.Fork(1, 2, 20))
    rig.publisher.flush()
    assert rig.text(20) == rig.text(10) != ""
    assert rig.mirror().sequences[2].block_table == rig.mirror().sequences[1].block_table
    rig.run_dry()
    assert rig.text(20) == rig.text(10)  # greedy: both say the same
    assert [rig.finished(i).num_tokens for i in (10, 20)] == [20, 20]
    rig.core.check_integrity()
    rig.send(ask(2, 21, "Hi", rig.text(20), "Go on", max_tokens=2))
    rig.run_dry()
    assert rig.finished(21).reason == "length"


def test_fork_of_a_finished_reply_is_told_and_ends_at_once():
    rig = reciting_rig("Hello!</s>")
    rig.send(ask(1, 10, "Hi"))
    rig.run_dry()
    rig.send(cmd.Fork(1, 2, 20))
    assert rig.text(20) == "Hello!"
    assert rig.finished(20).reason == "stop"
    rig.send(ask(2, 21, "Hi", "Hello!", "Bye"))
    assert rig.of(ev.RequestStarted, 21)[0].num_cached_tokens == len(rig.core.sequences[1]) - 1


def test_fork_after_a_refused_prompt_does_not_tell_the_reply_before_it():
    rig = reciting_rig("Hello!</s>")
    rig.send(ask(1, 10, "Hi"))
    rig.run_dry()
    rig.send(ask(1, 11, "x" * 2000), cmd.Fork(1, 2, 20))
    assert rig.text(20) == ""
    assert (rig.finished(20).num_prompt_tokens, rig.finished(20).num_tokens) == (0, 0)


def test_fork_of_an_unknown_session_ends_with_nothing():
    rig = EngineRig()
    rig.send(cmd.Fork(1, 2, 20))
    assert rig.finished(20).num_tokens == 0
    rig.send(ask(2, 21, "Hi", max_tokens=1))
    rig.run_dry()
    assert rig.finished(21).reason == "length"


def test_new_prompt_while_generating_ends_the_old_one():
    rig = EngineRig()
    rig.send(ask(1, 10, "Hi"))
    rig.step(3)
    rig.send(ask(1, 11, "Hello", max_tokens=2))
    rig.run_dry()
    assert rig.finished(10).reason == "abort"
    assert rig.finished(11).reason == "length"


def test_close_frees_the_blocks():
    rig = EngineRig()
    rig.send(ask(1, 10, "Hi"))
    rig.step(3)
    rig.send(cmd.Close(1), cmd.Close(1), cmd.Stop(1))
    rig.publisher.flush()
    assert rig.finished(10).reason == "abort"
    assert rig.core.sequences == {} == rig.mirror().sequences
    assert rig.core.stats().blocks_in_use == 0


def test_focused_session_goes_first():
    rig = EngineRig()
    rig.send(cmd.Focus(2), ask(1, 10, "Hi"), ask(2, 20, "Ho"), cmd.Fork(2, 3, 30))
    assert [rig.core.sequences[i].priority for i in (1, 2, 3)] == [0, 1, 0]
    rig.send(cmd.Focus(1))
    assert [rig.core.sequences[i].priority for i in (1, 2, 3)] == [1, 0, 0]


def test_too_long_a_prompt_is_refused_and_the_session_goes_on():
    limits = EngineLimits(num_blocks=20, block_size=BLOCK_SIZE, model_len=60, eos_token_ids=frozenset({1}))
    rig = EngineRig(limits=limits)
    rig.send(ask(1, 10, "Hi", max_tokens=2))
    rig.run_dry()
    rig.send(ask(1, 11, "x" * 100))
    (failed,) = rig.of(ev.RequestFailed)
    assert failed.request_id == 11
    assert "60" in failed.message
    assert failed.hint
    rig.send(ask(1, 12, "Hi", rig.text(10), "Ho", max_tokens=2))
    rig.run_dry()
    assert (
        rig.held_text(1)
        == f"<|user|>Hi</s><|assistant|>{rig.text(10)}</s><|user|>Ho</s><|assistant|>{rig.text(12)}"
    )


def test_prompts_are_refused_without_a_tokenizer():
    rig = EngineRig(tokenizer=None)
    rig.send(ask(1, 10, "Hi"))
    (failed,) = rig.of(ev.RequestFailed)
    assert "tokenizer" in failed.message


def test_prompt_with_a_token_that_the_model_lacks_fails_by_itself():
    """Here the tokens of the bytes above 127 lie beyond the model's rows."""
    limits = EngineLimits(num_blocks=50, block_size=BLOCK_SIZE, model_len=200, vocab_size=100)
    rig = reciting_rig("Hello!</s>", limits=limits)
    rig.send(ask(1, 1, "Hi", max_tokens=4), ask(2, 2, "Größe", max_tokens=4))
    [failed] = rig.of(ev.RequestFailed)
    assert (failed.session_id, failed.request_id) == (2, 2)
    assert "outside the model's vocabulary of 100 tokens" in failed.message
    rig.send(ask(2, 3, "Size", max_tokens=4))
    rig.run_dry()
    assert (rig.finished(1).reason, rig.finished(3).reason) == ("length", "length")
    rig.core.check_integrity()


def test_pause_acts_before_the_next_step_and_steps_are_counted():
    rig = EngineRig()
    rig.send(ask(1, 10, "Hi"))
    rig.step()
    rig.send(cmd.Pause())
    assert rig.events[-1] == ev.RunState(True)
    assert not rig.loop.may_step
    rig.send(cmd.StepOnce(2))
    rig.step(2)
    assert not rig.loop.may_step
    assert rig.mirror().last.step == 3  # published without waiting
    rig.send(cmd.Resume())
    assert rig.loop.may_step
    assert rig.events[-1] == ev.RunState(False)


def test_verbs_are_published_while_paused():
    rig = EngineRig()
    rig.send(cmd.Pause(), ask(1, 10, "Hi"), cmd.Fork(1, 2, 20))
    rig.inbox.put(Received(cmd.Shutdown(), 0.0))
    rig.loop.run()
    assert set(rig.mirror().sequences) == {1, 2}
    assert rig.core.stats().steps == 0


def test_steps_asked_for_without_work_are_forgotten():
    rig = EngineRig()
    rig.send(cmd.Pause(), cmd.StepOnce(5))
    for command in (ask(1, 10, "Hi"), cmd.Shutdown()):
        rig.inbox.put(Received(command, 0.0))
    rig.loop.run()
    assert rig.core.stats().steps == 0


def test_spare_work_is_done_between_commands_until_there_is_none():
    rig = EngineRig()
    left = [True, True, False]

    def clock() -> float:
        rig.clock.advance(0.03)
        return rig.clock()

    def work() -> bool:
        assert not rig.core.has_work
        if len(left) == 3:  # a prompt comes in meanwhile: it is answered before there is more of this
            rig.inbox.put(Received(ask(1, 10, "Hi", max_tokens=3), 0.0))
        elif len(left) == 2:
            assert rig.finished(10).num_tokens == 3
        else:
            rig.inbox.put(Received(cmd.Shutdown(), 0.0))
        return left.pop(0)

    EngineLoop(rig.core, rig.loop.chats, rig.loop.programs, rig.publisher, rig.inbox, clock, spare_work=work).run()
    assert left == []


def test_who_asks_again_at_once_does_not_wait_for_spare_work():
    rig, done = EngineRig(), list[float]()

    def work() -> bool:
        done.append(rig.clock())
        return True

    loop = EngineLoop(
        rig.core, rig.loop.chats, rig.loop.programs, rig.publisher, rig.inbox, rig.clock, spare_work=work
    )
    assert loop.turn(None) == 0.0
    assert done == [rig.clock()]  # nobody has asked for anything yet
    loop.handle(Received(ask(1, 10, "Hi", max_tokens=1), 0.0))
    while rig.core.has_work:
        assert loop.turn(None) == 0.0
    ended = rig.clock()
    assert loop.turn(None) == QUIET
    rig.clock.advance(QUIET / 2)
    assert loop.turn(None) == pytest.approx(QUIET / 2)
    assert len(done) == 1
    rig.clock.advance(QUIET / 2)
    assert loop.turn(None) == 0.0
    assert done[1:] == [pytest.approx(ended + QUIET)]


def test_a_request_behind_a_full_pool_waits_and_both_are_served():
    limits = EngineLimits(num_blocks=12, block_size=BLOCK_SIZE, model_len=60, eos_token_ids=frozenset({1}))
    rig = EngineRig(limits=limits)
    rig.send(ask(1, 10, "Hi", max_tokens=25), ask(2, 20, "Ho", max_tokens=25))
    rig.run_dry()
    assert rig.core.stats().preemptions > 0
    roomy = EngineRig()
    roomy.send(ask(1, 10, "Hi", max_tokens=25), ask(2, 20, "Ho", max_tokens=25))
    roomy.run_dry()
    assert [rig.text(i) for i in (10, 20)] == [roomy.text(i) for i in (10, 20)]


def test_steps_are_coalesced_but_the_first_token_is_not_held_back():
    rig = EngineRig()
    rig.send(ask(1, 10, "Hi"))
    rig.clock.advance(0.001)
    rig.loop.step()
    assert len(rig.text(10)) == 1
    before = len(rig.events)
    for _ in range(20):  # 20 steps in 20 ms
        rig.clock.advance(0.001)
        rig.loop.step()
    assert len(rig.events) == before
    rig.clock.advance(INTERVAL)
    rig.loop.step()
    token_texts, steps, delta = rig.events[before:]
    assert (len(steps.reports), len(delta.text)) == (21, 21)
    assert isinstance(token_texts, ev.TokenTexts)


def test_engine_that_cannot_go_on_fails_what_runs():
    rig = EngineRig()
    rig.send(ask(1, 10, "Hi"), ask(2, 20, "Ho"))
    rig.step()
    rig.loaded.runner.fail_next = RuntimeError("CUDA error")
    with pytest.raises(RuntimeError):
        rig.step()
    rig.loop.chats.fail_all("It broke.", "Ask again.")
    assert [event.request_id for event in rig.of(ev.RequestFailed)] == [10, 20]
