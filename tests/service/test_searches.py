"""Beam searches that sessions wait for: what they find, what they hold meanwhile and afterwards, how they end."""

import pytest

from pagedchat import cache_events as ce
from pagedchat import events as ev
from pagedchat.engine.groups.beam_params import BeamSearchParams
from pagedchat.service.commands import Close, Fork, Generate, Stop
from tests.fakes import byte_tokenizer, reciting
from tests.service.engine_rig import EngineRig, ask
from tests.service.fake_engine import BLOCK_SIZE
from tests.service.likely_runner import LikelyRunner

REPLY = "The boat left before dawn.</s>"
TOKENIZER = byte_tokenizer()


def rig_of(reply: str = REPLY) -> EngineRig:
    return EngineRig(LikelyRunner(reciting(TOKENIZER, reply), BLOCK_SIZE))


def search(session_id: int, request_id: int, *texts: str, width: int = 3, **overrides: object) -> Generate:
    asked = ask(session_id, request_id, *texts, **overrides)
    return Generate(session_id, request_id, asked.turns, asked.overrides, beam_width=width)


def shown(rig: EngineRig, request_id: int) -> str:
    """The reply as a chat has it: what comes anew takes the place of what was there."""
    text = ""
    for delta in rig.of(ev.TextDelta, request_id):
        text = delta.text if delta.anew else text + delta.text
    return text


def test_the_reply_is_the_likeliest_that_the_search_finds() -> None:
    rig = rig_of()
    rig.send(search(1, 10, "Hi", max_tokens=40))
    rig.run_dry()
    reference = rig_of()
    prompt = TOKENIZER.encode("<|user|>Hi</s><|assistant|>", add_special_tokens=False).ids
    group = reference.core.groups.search(prompt, BeamSearchParams(3, 40))
    reference.run_dry()
    best = group.hypotheses()[0].token_ids
    assert shown(rig, 10) == TOKENIZER.decode(best, skip_special_tokens=True)
    assert rig.finished(10).reason == "stop"
    assert rig.finished(10).num_tokens == len(best)
    assert len(rig.of(ev.RequestStarted, 10)) == 1


def test_the_beams_are_told_as_forks_that_are_pruned_and_end() -> None:
    rig = rig_of()
    rig.send(search(1, 10, "Hi", max_tokens=40))
    rig.run_dry()
    events = [event for steps in rig.of(ev.Steps) for report in steps.reports for event in report.events]
    (grouped,) = [event for event in events if isinstance(event, ce.SequenceGrouped)]
    assert (grouped.kind, grouped.size) == ("beams", 3)
    assert grouped.seq_id >= ce.FIRST_OF_PROGRAMS
    freed = [event.cause for event in events if isinstance(event, ce.BlocksFreed)]
    assert {"pruned", "ended"} <= set(freed)
    assert all(event.cause == "beam" for event in events if isinstance(event, ce.BlockCopied))


def test_afterwards_nothing_is_held_but_what_the_next_prompt_finds() -> None:
    rig = rig_of()
    rig.send(search(1, 10, "Hi", max_tokens=40))
    rig.run_dry()
    said = shown(rig, 10)
    assert rig.core.stats().blocks_in_use == 0
    assert set(rig.core.sequences) == {1}
    assert rig.held_text(1) == f"<|user|>Hi</s><|assistant|>{said}</s>"
    rig.send(ask(1, 11, "Hi", said, "And?"))
    rig.run_dry()
    held = len(TOKENIZER.encode(f"<|user|>Hi</s><|assistant|>{said}", add_special_tokens=False).ids)
    assert rig.finished(11).num_cached_tokens >= held - BLOCK_SIZE, "the blocks of the best beam are found"
    rig.core.check_integrity()


def test_what_is_the_likeliest_so_far_is_told_while_it_goes_on() -> None:
    rig = rig_of()
    rig.send(search(1, 10, "Hi", max_tokens=40))
    rig.step(12)
    rig.loop._publish()
    assert rig.of(ev.TextDelta, 10)[-1].anew
    assert shown(rig, 10) == "The boat lef"


def test_the_time_to_the_first_token_is_that_to_the_first_text_and_not_to_the_end() -> None:
    rig = rig_of()
    asked = rig.clock()
    rig.send(search(1, 10, "Hi", max_tokens=40))
    rig.step(1)
    rig.loop._publish()
    at = rig.clock() - asked
    rig.run_dry()
    done = rig.finished(10)
    assert done.time_to_first_token == pytest.approx(at)
    assert done.duration > 5 * at


def test_a_search_that_is_stopped_leaves_the_best_so_far() -> None:
    rig = rig_of()
    rig.send(search(1, 10, "Hi", max_tokens=40))
    rig.step(9)
    rig.send(Stop(1))
    rig.run_dry()
    assert (shown(rig, 10), rig.finished(10).reason) == ("The boat ", "abort")
    assert set(rig.core.sequences) == {1}
    assert rig.core.stats().blocks_in_use == 0
    assert not rig.loop.chats.searches.running


def test_one_that_is_stopped_before_its_first_step_leaves_nothing() -> None:
    rig = rig_of()
    rig.send(search(1, 10, "Hi"), Stop(1))
    rig.run_dry()
    assert rig.finished(10).num_prompt_tokens == 0
    assert rig.core.stats().blocks_in_use == 0


def test_a_chat_that_is_closed_takes_its_beams_with_it() -> None:
    rig = rig_of()
    rig.send(search(1, 10, "Hi"))
    rig.step(5)
    rig.send(Close(1))
    rig.run_dry()
    assert rig.core.sequences == {}
    assert rig.core.stats().blocks_in_use == 0


def test_another_prompt_takes_the_place_of_a_search() -> None:
    rig = rig_of()
    rig.send(search(1, 10, "Hi"))
    rig.step(5)
    rig.send(ask(1, 11, "Hello"))
    rig.run_dry()
    assert rig.text(11) == REPLY.removesuffix("</s>")
    assert rig.finished(10).reason == "abort"


def test_a_fork_of_a_chat_that_searches_is_at_rest() -> None:
    rig = rig_of()
    rig.send(search(1, 10, "Hi"))
    rig.step(5)
    rig.send(Fork(1, 2, 20))
    rig.run_dry()
    assert rig.finished(20).num_prompt_tokens == 0
    assert shown(rig, 10) == REPLY.removesuffix("</s>")


def test_chats_may_be_opened_while_beams_live() -> None:
    rig = rig_of()
    rig.send(search(1, 10, "Hi", width=8))
    rig.step(4)
    rig.send(*(ask(number, 10 * number, "Hello") for number in range(2, 8)))
    rig.run_dry()
    assert all(rig.text(10 * number) == REPLY.removesuffix("</s>") for number in range(2, 8))
    assert rig.of(ev.RequestFailed) == []


@pytest.mark.parametrize(("width", "said"), [(33, "beam_width"), (600, "beam_width")])
def test_too_many_beams_are_refused_and_nothing_is_held(width: int, said: str) -> None:
    rig = rig_of()
    rig.send(search(1, 10, "Hi", width=width))
    rig.run_dry()
    (failed,) = rig.of(ev.RequestFailed)
    assert said in failed.message
    assert rig.core.stats().blocks_in_use == 0
    assert not rig.loop.chats.searches.running


def test_a_reply_that_fills_what_there_is_becomes_the_chat_s() -> None:
    rig = rig_of("x" * 400)
    room = rig.core.limits.max_len
    rig.send(search(1, 10, "Hi", max_tokens=room))
    rig.run_dry()
    assert rig.of(ev.RequestFailed) == []
    assert len(rig.core.sequences[1].token_ids) == room - 1
    assert rig.finished(10).num_tokens == room - 1 - rig.finished(10).num_prompt_tokens


def test_a_prompt_that_leaves_a_search_no_room_is_one_sentence() -> None:
    rig = rig_of()
    room = rig.core.limits.max_len
    text = next(text for n in range(room) if num_prompt(text := "x" * n) == room - 1)
    rig.send(search(1, 10, text))
    rig.run_dry()
    (failed,) = rig.of(ev.RequestFailed)
    assert failed.message.startswith(f"The prompt has {room - 1} tokens, which leaves a search no room")
    assert rig.core.stats().blocks_in_use == 0


def num_prompt(text: str) -> int:
    return len(TOKENIZER.encode(f"<|user|>{text}</s><|assistant|>", add_special_tokens=False).ids)


def test_where_the_engine_cannot_go_on_the_search_is_told_to_have_failed() -> None:
    rig = rig_of()
    rig.send(search(1, 10, "Hi"))
    rig.step(3)
    rig.loop.chats.fail_all("The GPU is gone.", "Start again.")
    (failed,) = rig.of(ev.RequestFailed)
    assert (failed.request_id, failed.message) == (10, "The GPU is gone.")


def test_stop_strings_end_what_was_found() -> None:
    rig = rig_of()
    rig.send(search(1, 10, "Hi", max_tokens=40, stop=["left"]))
    rig.run_dry()
    assert shown(rig, 10) == "The boat "
    rig.send(ask(1, 11, "Hi", "The boat ", "And?"))
    rig.run_dry()
    assert rig.held_text(1).startswith("<|user|>Hi</s><|assistant|>The boat </s><|user|>And?")
