"""A reply is read token by token, ends before its stop strings, and says why it ended."""

import pytest

from pagedchat import cache_events as ce
from pagedchat import events as ev
from pagedchat.chat.replies import Reply, endings
from pagedchat.engine.sequence import Sequence
from tests.fakes import EOS, byte_tokenizer

TOKENIZER = byte_tokenizer()
END = TOKENIZER.token_to_id(EOS)


def encode(text: str) -> list[int]:
    return TOKENIZER.encode(text, add_special_tokens=False).ids


def asked(prompt: str = "Hi") -> Sequence:
    """A sequence that was just asked for a reply."""
    sequence = Sequence(1)
    sequence.token_ids = encode(prompt)
    sequence.num_prompt_tokens = len(sequence)
    sequence.stop_token_ids = frozenset({END})
    return sequence


def say(sequence: Sequence, text: str, ends: ce.FinishReason | None = None) -> None:
    sequence.token_ids += encode(text)
    sequence.finish_reason = ends


def read(text: str, *stop: str, strip_start: bool = False) -> tuple[Reply, list[str | None]]:
    """A reply that gets one token at a time, and what each of them released."""
    sequence = asked()
    reply = Reply(sequence, TOKENIZER, stop, strip_start=strip_start)
    released = []
    for token_id in encode(text):
        sequence.token_ids.append(token_id)
        released.append(reply.take())
    return reply, released


def test_new_tokens_are_taken_once() -> None:
    sequence = asked()
    reply = Reply(sequence, TOKENIZER)
    assert reply.take() is None
    say(sequence, "one")
    assert (reply.take(), reply.take(), reply.text) == ("one", None, "one")
    say(sequence, " two")
    assert (reply.num_tokens, reply.token_ids) == (7, encode("one two"))
    assert (reply.take(), reply.text, reply.finish_reason) == (" two", "one two", None)


def test_a_character_in_pieces_is_no_text_before_it_is_whole() -> None:
    reply, released = read("é!")
    assert released == ["", "é", "!"]
    assert reply.finish("length") == ""


def test_what_was_held_back_comes_at_the_end() -> None:
    sequence = asked()
    reply = Reply(sequence, TOKENIZER, ["STOP"])
    say(sequence, "not ST")
    assert (reply.take(), reply.finish("length")) == ("not ", "ST")
    assert (reply.text, reply.finish_reason) == ("not ST", "length")


def test_token_that_ends_the_reply_is_counted_and_says_nothing() -> None:
    sequence = asked()
    sequence.stop_token_ids = frozenset(encode("."))
    reply = Reply(sequence, TOKENIZER)
    say(sequence, "one.", ends="stop")
    assert (reply.take(), reply.num_tokens) == ("one", 4)


def test_same_token_in_the_middle_or_at_a_limit_is_text() -> None:
    sequence = asked()
    sequence.stop_token_ids = frozenset(encode("."))
    reply = Reply(sequence, TOKENIZER)
    say(sequence, "1.5", ends="stop")
    assert reply.take() == "1.5"
    say(sequence, ".", ends="length")
    assert reply.take() == "."


def test_stop_string_ends_the_reply_whatever_the_sequence_ended_by() -> None:
    reply, released = read("one STOP two", "STOP")
    assert "".join(piece or "" for piece in released) == reply.text == "one "
    assert reply.stopped
    assert (reply.finish("length"), reply.finish_reason) == ("", "stop")


def test_stop_string_that_only_the_end_completes_ends_the_reply_too() -> None:
    sequence = asked()
    reply = Reply(sequence, TOKENIZER, ["\ufffd"])
    sequence.token_ids += [*encode("ab"), encode("é")[0]]  # half a character
    assert (reply.take(), reply.stopped) == ("ab", False)
    assert (reply.finish("length"), reply.finish_reason, reply.text) == ("", "stop", "ab")


def test_white_space_before_the_first_word_can_be_left_out() -> None:
    reply, released = read(" \n Fine. ", strip_start=True)
    assert released[:5] == ["", "", "", "F", "i"]
    assert "".join(piece or "" for piece in released) == reply.text == "Fine. "
    assert read(" Fine.")[0].text == " Fine."


def test_white_space_held_back_to_the_end_is_left_out_as_well() -> None:
    sequence = asked()
    reply = Reply(sequence, TOKENIZER, ["  end"], strip_start=True)
    say(sequence, " ")
    assert (reply.take(), reply.finish("length"), reply.text) == ("", "", "")


def test_fork_goes_on_alone() -> None:
    reply, _ = read(" one", strip_start=True)
    child = asked()
    child.token_ids = list(reply.sequence.token_ids)
    twin = reply.fork(child)
    say(reply.sequence, " two")
    say(child, " three")
    assert (twin.take(), reply.take()) == (" three", " two")
    assert (twin.text, reply.text) == ("one three", "one two")
    twin.finish("abort")
    assert (twin.finish_reason, reply.finish_reason) == ("abort", None)


def test_without_a_tokenizer_tokens_are_counted_all_the_same() -> None:
    sequence = asked()
    reply = Reply(sequence, None, ["one"])
    say(sequence, "one")
    assert (reply.take(), reply.num_tokens, reply.stopped) == ("", 3, False)
    assert (reply.finish("length"), reply.finish_reason) == ("", "length")


@pytest.mark.parametrize("reasons", [[], ["stop"], ["length", "abort"]])
def test_ends_are_learned_from_a_report(reasons: list[ce.FinishReason]) -> None:
    parked = [ce.SequenceParked(number, reason) for number, reason in enumerate(reasons)]
    events = [ce.SequenceOpened(8), *parked, ce.SequenceRewound(9, 3)]
    pool, queues = ev.PoolCounts(1, 1, 0, 0, 0, 0, 0, 0), ev.QueueLengths(0, 0, 0, len(parked))
    report = ev.StepReport(1, 0.0, [], events, pool, queues, ev.Timings(), ev.Counters())
    assert endings(report) == parked
