"""A fork that goes on from within a reply with another token: what it shares, what it copies, what it says."""

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pagedchat import events as ev
from pagedchat.service.commands import Close, Fork, Generate, Stop
from tests.fakes import byte_tokenizer, reciting
from tests.service.engine_rig import EngineRig, ask
from tests.service.fake_engine import BLOCK_SIZE
from tests.service.likely_runner import LOGPROBS, LikelyRunner

REPLY = "The boat left before dawn. 🌊 Nobody looked up.</s>"
TOKENIZER = byte_tokenizer()


def rig_of(reply: str = REPLY) -> EngineRig:
    return EngineRig(LikelyRunner(reciting(TOKENIZER, reply), BLOCK_SIZE))


def told(rig: EngineRig, request_id: int) -> list[ev.ToldToken]:
    return [token for delta in rig.of(ev.TextDelta, request_id) for token in delta.told]


def fork_with(rig: EngineRig, asked: Generate, index: int, token_id: int, session_id: int = 2) -> None:
    """As the desk does it: a fork, and at once the prompt with the reply's beginning."""
    begun = [token.token_ids[0] for token in told(rig, asked.request_id)[:index]]
    again = msgspec.structs.replace(
        asked, session_id=session_id, request_id=100 * session_id, begun=[*begun, token_id]
    )
    rig.send(Fork(asked.session_id, session_id, 100 * session_id + 1), again)


def ids_of(text: str) -> list[int]:
    return TOKENIZER.encode(text, add_special_tokens=False).ids


# --- what is told -----------------------------------------------------------------------------------------


def test_every_token_is_told_once_with_its_characters_and_its_alternatives() -> None:
    rig = rig_of()
    rig.send(ask(1, 10, "Hi", logprobs=3))
    rig.run_dry()
    tokens, text = told(rig, 10), rig.text(10)
    assert [token.token_ids[0] for token in tokens] == ids_of(REPLY)
    assert text == REPLY.removesuffix("</s>")
    wave = text.index("🌊")
    parts = [token for token in tokens if (token.start, token.end) == (wave, wave + 1)]
    assert len(parts) == 4, "four bytes, each a token, have the one character together"
    plain = [token for token in tokens if token not in parts][:-1]
    assert "".join(text[token.start : token.end] for token in plain) == text.replace("🌊", "")
    assert (tokens[-1].start, tokens[-1].end) == (len(text), len(text)), "the end of the reply has no character"
    assert ev.unpacked(tokens[0].logprobs) == pytest.approx([LOGPROBS[0], *LOGPROBS[:3]], abs=0)
    assert all(token.rank == 1 and len(token.token_ids) == len(token.texts) == 4 for token in tokens)
    assert rig.of(ev.TextDelta, 10)[0].num_told == 0


def test_who_does_not_ask_is_told_nothing() -> None:
    rig = rig_of()
    rig.send(ask(1, 10, "Hi"))
    rig.run_dry()
    assert told(rig, 10) == []
    assert rig.loop.chats._chats[1].request.reply.told is None


def test_the_fork_of_a_running_reply_is_told_all_of_it_again() -> None:
    rig = rig_of()
    rig.send(ask(1, 10, "Hi", logprobs=1))
    rig.step(8)
    rig.send(Fork(1, 2, 20))
    rig.run_dry()
    assert [token.token_ids for token in told(rig, 20)] == [token.token_ids for token in told(rig, 10)]


# --- what the branch costs --------------------------------------------------------------------------------


@pytest.mark.parametrize("index", range(1, 30))
def test_the_branch_costs_one_block(index: int) -> None:
    rig = rig_of()
    asked = ask(1, 10, "Tell me of a boat", logprobs=2)
    rig.send(asked)
    rig.run_dry()
    before, source = rig.core.stats(), list(rig.core.sequences[1].block_table)
    fork_with(rig, asked, index, ids_of("X")[0])
    rig.step()
    after, branch = rig.core.stats(), rig.core.sequences[2].block_table
    cut = rig.core.sequences[2].num_prompt_tokens + index
    assert after.blocks_in_use - before.blocks_in_use == 1
    assert branch[: cut // BLOCK_SIZE] == source[: cut // BLOCK_SIZE], "all before the token is shared"
    assert after.copies - before.copies == (cut % BLOCK_SIZE > 0), "a block that is cut in the middle is copied"
    assert after.prefill_tokens == before.prefill_tokens, "one token was computed, the one that was chosen"
    rig.run_dry()
    rig.core.check_integrity()


def test_the_branch_goes_on_from_the_chosen_token_and_the_chat_after_it_prefills_only_what_is_new() -> None:
    rig = rig_of()
    asked = ask(1, 10, "Hi", logprobs=2)
    rig.send(asked)
    rig.run_dry()
    fork_with(rig, asked, 4, ids_of("B")[0])
    rig.run_dry()
    said = rig.text(200)
    assert said == "The " + "B" + REPLY[5:].removesuffix("</s>")
    assert rig.held_text(2) == f"<|user|>Hi</s><|assistant|>{said}</s>"
    held = len(rig.core.sequences[2])
    assert rig.core.sequences[2].num_prompt_tokens == rig.core.sequences[1].num_prompt_tokens
    rig.send(ask(2, 999, "Hi", said, "And then?"))
    rig.run_dry()
    assert rig.finished(999).num_cached_tokens >= held - 1, "what the branch holds was kept, to the token"


def test_places_of_the_first_tokens_are_told_and_of_the_rest_everything() -> None:
    rig = rig_of()
    asked = ask(1, 10, "Hi", logprobs=2)
    rig.send(asked)
    rig.run_dry()
    fork_with(rig, asked, 4, ids_of("B")[0])
    rig.run_dry()
    tokens = told(rig, 200)
    assert [token.rank for token in tokens[:6]] == [0, 0, 0, 0, 0, 1]
    assert [(token.start, token.end) for token in tokens[:6]] == [(i, i + 1) for i in range(6)]
    assert len(tokens) == len(ids_of(REPLY))


def test_a_branch_within_a_character_is_as_exact() -> None:
    rig = rig_of()
    asked = ask(1, 10, "Hi", logprobs=2)
    rig.send(asked)
    rig.run_dry()
    wave = rig.text(10).index("🌊")
    fork_with(rig, asked, wave + 3, ids_of("🌋")[-1])
    rig.run_dry()
    assert rig.text(200).startswith(REPLY[:wave] + "🌋")


# --- how it may end at once -------------------------------------------------------------------------------


def test_a_branch_with_the_end_of_the_reply_has_ended() -> None:
    rig = rig_of()
    asked = ask(1, 10, "Hi", logprobs=2)
    rig.send(asked)
    rig.run_dry()
    steps = rig.core.stats().steps
    fork_with(rig, asked, 8, TOKENIZER.token_to_id("</s>"))
    rig.run_dry()
    assert (rig.text(200), rig.finished(200).reason) == ("The boat", "stop")
    assert rig.core.stats().steps == steps, "nothing was to be computed"


def test_a_branch_at_the_last_token_that_there_may_be_has_ended() -> None:
    rig = rig_of()
    asked = ask(1, 10, "Hi", logprobs=2, max_tokens=6)
    rig.send(asked)
    rig.run_dry()
    fork_with(rig, asked, 5, ids_of("X")[0])
    rig.run_dry()
    assert (rig.text(200), rig.finished(200).reason) == ("The bX", "length")
    fork_with(rig, asked, 2, ids_of("X")[0], session_id=3)
    rig.run_dry()
    assert rig.text(300) == "ThX" + REPLY[3:6], "tokens that were given count as any"


def test_a_token_that_completes_a_stop_string_ends_it() -> None:
    rig = rig_of()
    asked = ask(1, 10, "Hi", logprobs=2, stop=["Zb"])
    rig.send(asked)
    rig.run_dry()
    fork_with(rig, asked, 3, ids_of("Z")[0])
    rig.run_dry()
    assert (rig.text(200), rig.finished(200).reason) == ("The", "stop")


# --- what may be between ----------------------------------------------------------------------------------


def test_a_branch_of_a_reply_that_is_being_written_leaves_it_alone() -> None:
    rig = rig_of()
    asked = ask(1, 10, "Hi", logprobs=2)
    rig.send(asked)
    rig.step(10)
    rig.publisher.flush()
    rig.loop._publish()
    fork_with(rig, asked, 4, ids_of("B")[0])
    rig.run_dry()
    assert rig.text(10) == REPLY.removesuffix("</s>")
    assert rig.text(200).startswith("The B")
    rig.core.check_integrity()


def test_an_engine_that_knows_nothing_of_the_source_computes_the_branch() -> None:
    rig = rig_of()
    asked = ask(2, 20, "Hi", logprobs=2)
    rig.send(Fork(1, 2, 21), msgspec.structs.replace(asked, begun=ids_of("The B")))
    rig.run_dry()
    assert rig.text(20) == "The B" + REPLY[5:].removesuffix("</s>")
    assert rig.finished(20).num_prompt_tokens == len(ids_of("<|user|>Hi</s><|assistant|>"))


def test_a_branch_of_an_earlier_turn() -> None:
    rig = rig_of("Aye.</s>")
    first = ask(1, 10, "Hi", logprobs=2)
    rig.send(first)
    rig.run_dry()
    rig.send(ask(1, 11, "Hi", "Aye.", "And?", logprobs=2))
    rig.run_dry()
    before = rig.core.stats().blocks_in_use
    fork_with(rig, first, 1, ids_of("b")[0])
    rig.run_dry()
    assert rig.text(200) == "Abe."
    assert rig.core.stats().blocks_in_use - before <= 2


def test_a_token_that_the_model_does_not_have_is_refused_and_nothing_is_held() -> None:
    rig = EngineRig(LikelyRunner(reciting(TOKENIZER, REPLY), BLOCK_SIZE))
    asked = ask(1, 10, "Hi", logprobs=2)
    rig.send(asked)
    rig.run_dry()
    fork_with(rig, asked, 3, -7)
    rig.run_dry()
    (failed,) = rig.of(ev.RequestFailed)
    assert failed.request_id == 200
    assert "Token id -7 is outside the model's vocabulary" in failed.message
    rig.send(Close(1), Close(2))
    rig.run_dry()
    assert rig.core.stats().blocks_in_use == 0


def test_tokens_of_another_model_s_reply_are_refused() -> None:
    rig = rig_of()
    asked = ask(2, 20, "Hi", logprobs=2)
    rig.send(msgspec.structs.replace(asked, begun=ids_of("The B"), begun_text=b"The C"))
    rig.run_dry()
    (failed,) = rig.of(ev.RequestFailed)
    assert failed.message.startswith("The tokens of this reply are another model's")
    assert rig.core.stats().blocks_in_use == 0
    rig.send(msgspec.structs.replace(asked, request_id=21, begun=ids_of("The B"), begun_text=b"The B"))
    rig.run_dry()
    assert rig.text(21).startswith("The B")


@settings(max_examples=40, deadline=None)
@given(data=st.data())
def test_whatever_is_forked_stopped_and_gone_on_with_the_text_is_what_the_sequence_holds(
    data: st.DataObject,
) -> None:
    rig = rig_of()
    asked = ask(1, 10, "Hi", logprobs=2)
    rig.send(asked)
    rig.step(data.draw(st.integers(1, 45)))
    rig.loop._publish()
    for number in range(2, data.draw(st.integers(3, 5))):
        index = data.draw(st.integers(0, max(0, len(told(rig, 10)) - 1)))
        fork_with(rig, asked, index, ids_of(data.draw(st.sampled_from("XYZ")))[0], session_id=number)
        for _ in range(data.draw(st.integers(0, 12))):
            if rig.loop.may_step:
                rig.step()
        if data.draw(st.booleans()):
            rig.send(Stop(number))
        rig.core.check_integrity()
    rig.run_dry()
    for number in [session for session in rig.core.sequences if session > 1]:
        said = rig.text(100 * number)
        assert rig.held_text(number).removesuffix("</s>") == f"<|user|>Hi</s><|assistant|>{said}"
        rig.send(ask(number, 1000 + number, "Hi", said, "And?"))
        rig.run_dry()
        assert rig.held_text(number).startswith(f"<|user|>Hi</s><|assistant|>{said}</s><|user|>And?")
