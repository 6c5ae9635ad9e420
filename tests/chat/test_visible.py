"""What is drawn of a text, and which characters of the source each drawn one stands for."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pagedchat.chat.sanitize import sanitize
from pagedchat.chat.visible import visible

DRAWN = [
    ("plain\ntext", "plain\ntext"),
    ("\x1b[31mred\x1b[0m", r"\x1b[31mred\x1b[0m"),
    ("\x9b2J\x07\x00\x7f", r"\x9b2J\x07\x00\x7f"),
    ("a\u202eb\u2066c\ufeff", r"a\u202eb\u2066c\ufeff"),
    ("hid\U000e0041den", r"hid\U000e0041den"),
    ("half \ud83d", r"half \ud83d"),
    ("a\r\nb\rc\u2028d", "a\nb\nc\nd"),
    ("a\tb\n海\tc", "a   b\n海  c"),
    ("\x1b\tb", "\\x1b    b"),
    ("👩\u200d👧 ❤\ufe0f", "👩👧 ❤"),
    ("e\u0301 \u0301x\n\u0301y", "e\u0301 x\ny"),
    ("Z" + "\u0301" * 40, "Z" + "\u0301" * 5),
    ("น\u0e33", "น\u0e4d\u0e32"),
]


@pytest.mark.parametrize(("text", "drawn"), DRAWN)
def test_what_would_be_obeyed_or_hidden_is_spelled_out(text, drawn):
    assert visible(text).text == drawn


ANY = st.text(
    alphabet=st.characters() | st.sampled_from("\x1b\x9b\t\r\n\u2028\u0301\u200d\u202e\U000e0041 ab"), max_size=40
)


@given(ANY)
def test_every_drawn_character_stands_for_source_characters_in_order(text):
    drawn = visible(text)
    places = [drawn.source(at) for at in range(len(drawn.text))]
    assert places == sorted(places)
    assert all(0 <= place < len(text) for place in places)
    changed = {at for change in drawn.changes for at in range(change.start, change.end)}
    same = [at for at in range(len(drawn.text)) if places[at] not in changed]
    assert [drawn.text[at] for at in same] == [text[places[at]] for at in same]
    assert {places[at] for at in same} == set(range(len(text))) - changed


@given(ANY)
def test_it_is_as_safe_as_what_is_copied(text):
    drawn = visible(text).text
    assert sanitize(drawn) == drawn


@given(ANY, ANY)
def test_lines_are_drawn_alike_together_and_alone(first, second):
    if not first.endswith("\r"):
        assert visible(first + "\n" + second).text == visible(first).text + "\n" + visible(second).text
