"""A reply that is read only when it says so ends at the same step, with the same text, as one read every step."""

from dataclasses import dataclass

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer, decoders, models

from pagedchat.chat.replies import Reply
from pagedchat.engine.sequence import Sequence
from tests.chat.test_detokenizer import KINDS, TRAINED

WORDPIECE = Tokenizer(
    models.WordPiece({"[UNK]": 0, "a": 1, "##b": 2, "\n": 3, "日": 4, "##a": 5}, unk_token="[UNK]")
)
WORDPIECE.decoder = decoders.WordPiece()
TOKENIZERS = {**KINDS, "asked token by token": WORDPIECE}
TEXTS = st.text(st.sampled_from("abe \n日本語🤗é"), min_size=1, max_size=30)


@dataclass(frozen=True)
class Ending:
    """How a reply came out."""

    num_tokens: int
    """After which its stop string was met; all of them if none was."""
    text: str
    stopped: bool


def asked() -> Sequence:
    sequence = Sequence(1)
    sequence.token_ids = TRAINED.encode("Hello").ids
    sequence.num_prompt_tokens = len(sequence)
    return sequence


def every_step(tokenizer: Tokenizer, token_ids: list[int], stop: list[str]) -> Ending:
    """Read after every token, whatever it is."""
    sequence = asked()
    reply = Reply(sequence, tokenizer, stop)
    for token_id in token_ids:
        sequence.token_ids.append(token_id)
        reply.take()
        if reply.stopped:
            break
    num_tokens = reply.num_tokens
    reply.finish("length")
    return Ending(num_tokens, reply.text, reply.stopped)


def when_due(tokenizer: Tokenizer, token_ids: list[int], stop: list[str], looks: set[int]) -> tuple[Ending, int]:
    """Read where it is due, and after these tokens, as a screen draws; how often it was due, too."""
    sequence = asked()
    reply = Reply(sequence, tokenizer, stop)
    told, num_due = "", 0
    for number, token_id in enumerate(token_ids):
        sequence.token_ids.append(token_id)
        is_due = reply.is_due()
        num_due += is_due
        if is_due or number in looks:
            told += reply.take() or ""
        if reply.stopped:
            break
    num_tokens = reply.num_tokens
    told += reply.finish("length")
    assert told == reply.text  # what was told is the whole text, with nothing twice
    return Ending(num_tokens, reply.text, reply.stopped), num_due


def end_by_the_text(tokenizer: Tokenizer, token_ids: list[int], stop: list[str]) -> int:
    """The first number of tokens whose text has a stop string in it, all of them if none has."""
    for count in range(1, len(token_ids) + 1):
        text = tokenizer.decode(token_ids[:count])
        if any(word in text for word in stop):
            return count
    return len(token_ids)


@pytest.mark.parametrize("kind", TOKENIZERS)
@settings(deadline=None)
@given(st.data())
def test_any_way_to_look_gives_the_same_text_and_the_same_last_step(kind: str, data: st.DataObject) -> None:
    tokenizer = TOKENIZERS[kind]
    token_ids = data.draw(st.lists(st.integers(0, tokenizer.get_vocab_size() - 1), max_size=30))
    pieces = st.lists(st.sampled_from(token_ids or [0]), min_size=1, max_size=4).map(tokenizer.decode)
    words = TEXTS.map(lambda text: text[:4]) | pieces | st.just("\ufffd") | st.just("\n")
    stop = data.draw(st.lists(words.filter(bool), max_size=3))
    looks = data.draw(st.sets(st.integers(0, len(token_ids))))
    ending, _ = when_due(tokenizer, token_ids, stop, looks)
    assert ending == every_step(tokenizer, token_ids, stop)


@settings(deadline=None, max_examples=200)
@given(TEXTS, st.data())
def test_a_stop_string_ends_the_reply_with_the_token_that_completes_it(text: str, data: st.DataObject) -> None:
    token_ids = TRAINED.encode(text).ids
    start = data.draw(st.integers(0, len(text) - 1))
    stop = [text[start : start + data.draw(st.integers(1, 6))]]  # over the borders of tokens, as they come
    ending, _ = when_due(TRAINED, token_ids, stop, data.draw(st.sets(st.integers(0, 60))))
    assert ending == Ending(end_by_the_text(TRAINED, token_ids, stop), text[: text.index(stop[0])], True)


def test_tokens_without_a_beginning_of_a_stop_string_are_not_looked_at() -> None:
    token_ids = TRAINED.encode("all is well. " * 20 + "\nUser: no").ids
    ending, num_due = when_due(TRAINED, token_ids, ["\nUser:", "\nAssistant:"], set())
    assert ending.text == "all is well. " * 20
    num_after = len(TRAINED.encode("\nUser:").ids) + 1
    assert num_due <= 1 + num_after  # the first token, and those from the line's end on


def test_without_stop_strings_only_the_first_token_is_due() -> None:
    token_ids = TRAINED.encode("naïve 日本語 🤗 café").ids
    assert when_due(TRAINED, token_ids, [], set())[1] == 1


def test_several_tokens_at_once_are_looked_at_each() -> None:
    sequence = asked()
    reply = Reply(sequence, TRAINED, ["\n"])
    due = []
    for text in ("a", "bc", "", "d\ne", "f"):
        sequence.token_ids += TRAINED.encode(text).ids
        due.append(reply.is_due())
        if due == [True]:
            reply.take()
    assert due == [True, False, False, True, False]
    assert (reply.take(), reply.stopped) == ("bcd", True)
