"""Thoughts told apart from replies, however the text is cut."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pagedchat.server.replies.parts import Part, Text, Thought
from pagedchat.server.replies.thoughts import ThoughtSplitter, opened_by

REPLIES = {
    "Hello <b>": ("", "Hello <b>"),
    "<think>\nhm hm \n</think>\n\nHello": ("hm hm", "Hello"),
    "<think>\n\n</think>\n\nHello": ("", "Hello"),
    "\n<reasoning>a < b</reasoning>Yes": ("a < b", "Yes"),
    "<think>open ": ("open", ""),
    "<think></think>  ": ("", ""),
    "<thin": ("", "<thin"),
    "I said <think>x</think>": ("", "I said <think>x</think>"),
    "  padded ": ("", "  padded "),
    "": ("", ""),
}


def split(pieces: list[str], opened: str = "") -> tuple[str, str]:
    splitter = ThoughtSplitter(opened)
    parts: list[Part] = [part for piece in pieces for part in splitter.feed(piece)]
    parts += splitter.finish()
    assert all(part.text for part in parts if isinstance(part, Text | Thought))
    return (
        "".join(part.text for part in parts if isinstance(part, Thought)),
        "".join(part.text for part in parts if isinstance(part, Text)),
    )


@pytest.mark.parametrize(("reply", "parts"), REPLIES.items())
def test_whole_and_letter_by_letter_it_is_the_same(reply: str, parts: tuple[str, str]) -> None:
    assert split([reply]) == parts
    assert split(list(reply)) == parts


def test_a_thought_that_the_prompt_has_opened_needs_no_opening_tag() -> None:
    assert split(["hm\n</think>\nYes"], "think") == ("hm", "Yes")
    assert split(list("hm </thing> </think>Yes"), "think") == ("hm </thing>", "Yes")
    assert split(["hm"], "think") == ("hm", "")


@given(st.lists(st.sampled_from(["<think>", "</think>", "<", "/think>", " ", "\n", "a", "thinking>"]), max_size=8))
def test_no_cut_changes_anything(pieces: list[str]) -> None:
    whole = "".join(pieces)
    assert split(pieces) == split([whole]) == split(list(whole))


@pytest.mark.parametrize(
    ("prompt", "name"),
    [
        ("<|assistant|><think>\n", "think"),
        ("...<reasoning>", "reasoning"),
        ("<think>x", ""),
        ("</think>\n", ""),
        ("", ""),
    ],
)
def test_the_prompt_says_whether_a_thought_is_open(prompt: str, name: str) -> None:
    assert opened_by(prompt) == name
