"""Released text is the whole text cut at the first stop string, whatever pieces it comes in."""

import tracemalloc
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pagedchat.chat.stop_strings import OutputProcessor
from tests.fakes import EOS, byte_tokenizer

TOKENIZER = byte_tokenizer()
TEXTS = st.text(st.sampled_from("ab \n日🤗"), max_size=40)
STOPS = st.lists(st.text(st.sampled_from("ab \n🤗"), min_size=1, max_size=4), max_size=3)


def encode(text: str) -> list[int]:
    return TOKENIZER.encode(text, add_special_tokens=False).ids


def pieces(token_ids: list[int], cuts: list[int]) -> list[list[int]]:
    edges = [0, *sorted(min(cut, len(token_ids)) for cut in cuts), len(token_ids)]
    return [token_ids[a:b] for a, b in pairwise(edges)]


def cut(text: str, stop: list[str]) -> str:
    """Character by character: the first end of any stop string counts."""
    for end in range(1, len(text) + 1):
        starts = [end - len(word) for word in stop if text[:end].endswith(word)]
        if starts:
            return text[: min(starts)]
    return text


@settings(deadline=None)
@given(TEXTS, STOPS, st.lists(st.integers(0, 120)))
def test_released_text_is_the_text_cut_at_the_first_stop_string(text, stop, cuts):
    output = OutputProcessor(TOKENIZER, stop)
    released = ""
    for piece in pieces(encode(text), cuts):
        released += output.append(piece)
        assert released == output.text
        assert cut(text, stop).startswith(released)  # nothing is ever taken back
    released += output.finish()
    assert released == output.text == cut(text, stop)
    assert output.stopped == (released != text or any(text.startswith(word) for word in stop))


@settings(deadline=None)
@given(TEXTS, STOPS, st.integers(0, 120))
def test_the_token_that_completes_a_stop_string_is_known_however_many_come(text, stop, at):
    token_ids = encode(text)
    one_by_one, together = OutputProcessor(TOKENIZER, stop), OutputProcessor(TOKENIZER, stop)
    for output in (one_by_one, together):
        output.append(token_ids[:at])
    count, released = 0, ""
    while not one_by_one.stopped and at + count < len(token_ids):
        released += one_by_one.append([token_ids[at + count]])
        count += 1

    assert together.append_until_stop(token_ids[at:]) == (released, count)
    assert (together.text, together.stopped, together.stop_string) == (
        one_by_one.text, one_by_one.stopped, one_by_one.stop_string,
    )  # fmt: skip


@settings(deadline=None)
@given(TEXTS, STOPS, st.integers(0, 120))
def test_fork_goes_on_alone(text, stop, at):
    token_ids = encode(text)
    output = OutputProcessor(TOKENIZER, stop)
    output.append(token_ids[:at])
    twin = output.fork()
    output.append(encode("x" * 5))
    twin.append(token_ids[at:])
    twin.finish()
    assert twin.text == cut(text, stop)


def test_what_may_be_a_stop_string_is_held_back():
    output = OutputProcessor(TOKENIZER, ["\nUser:"])
    assert output.append(encode("Hi\nUse")) == "Hi"
    assert output.append(encode("ful")) == "\nUseful"
    assert output.append(encode("\nUser")) == ""
    assert output.finish() == "\nUser"
    assert not output.stopped


def test_nothing_is_released_after_a_stop_string():
    output = OutputProcessor(TOKENIZER, ["."])
    assert output.append(encode("one. two")) == "one"
    assert output.stopped
    assert output.append(encode("three")) == output.finish() == ""
    assert output.text == "one"


def test_special_tokens_are_no_text():
    output = OutputProcessor(TOKENIZER, ["</s>"])
    assert output.append([*encode("a"), TOKENIZER.token_to_id(EOS), *encode("b")]) == "ab"


@pytest.mark.parametrize(
    ("text", "stop", "released"),
    [
        ("abcd", ["abcd", "bc"], "a"),
        ("abc", ["bc", "abc"], ""),
        ("abc", ["c", "b"], "a"),
        ("abc", ["d"], "abc"),
        ("abc", [], "abc"),
        ("aabaabaaab", ["aabaaa", "baaab"], "aab"),
        ("abab", ["bab", "bab"], "a"),
    ],
)
def test_first_complete_stop_string_counts(text, stop, released):
    output = OutputProcessor(TOKENIZER, stop)
    assert output.append(encode(text)) + output.finish() == released
    assert output.stopped == (released != text)


def test_a_long_stop_string_takes_memory_in_proportion_to_its_length():
    word = "abcdefghij" * 2_000 + "!"
    tracemalloc.start()
    try:
        output = OutputProcessor(TOKENIZER, [word])
        twins = [output.fork() for _ in range(20)]
        assert tracemalloc.get_traced_memory()[1] < 20 * len(word)
    finally:
        tracemalloc.stop()
    assert output.append(encode("x" + word[:-1])) == "x"
    assert output.append(encode("abc")) == "abcdefghij"  # it may have begun ten characters later
    assert twins[0].append(encode("y" + word + "z")) == "y"
    assert twins[0].stopped
