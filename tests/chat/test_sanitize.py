import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pagedchat.chat.sanitize import drawable, one_line, sanitize, terminal_json

NASTY = [
    ("\x1b[31mred\x1b[0m", "red"),
    ("\x1b]0;title\x07text", "text"),
    ("\x1b]52;c;ZXZpbA==\x1b\\text", "text"),
    ("\x1bP1$r0m\x1b\\text", "text"),
    ("\x9b2Jtext", "text"),
    ("\x9d0;title\x9ctext", "text"),
    ("\x1bctext", "text"),
    ("text\x1b", "text"),
    ("text\x1b[", "text"),
    ("\x1b[?1049h\x1b[2J\x1b[Htext", "text"),
    ("a\x00b\x07c\x08d\x7fe", "abcde"),
    ("a\u202eb\u2066c\u200fd\ufeffe", "abcde"),
    ("hidden\U000e0041tag", "hiddentag"),
    ("lone\ud800surrogate", "lone\ufffdsurrogate"),
    ("a\r\nb\rc\u2028d\u0085e", "a\nb\nc\nd\ne"),
    ("[bold]not markup[/bold]", "[bold]not markup[/bold]"),
    ("a\tb", "a   b"),
    ("海\tb", "海  b"),
    ("x\n\ty", "x\n    y"),
    ("👩\u200d👧 e\u0301", "👩\u200d👧 e\u0301"),
]


@pytest.mark.parametrize(("raw", "safe"), NASTY)
def test_nothing_is_left_that_a_terminal_could_obey(raw, safe):
    assert sanitize(raw) == safe


@given(st.text(alphabet=st.characters() | st.sampled_from("\x1b\x9b\x9d[];mH0\x07\t\r\n"), max_size=60))
def test_any_text_becomes_safe(text):
    safe = sanitize(text)
    assert not any(ord(char) < 32 and char != "\n" for char in safe)
    assert not any(0x7F <= ord(char) <= 0x9F or 0xD800 <= ord(char) <= 0xDFFF for char in safe)
    assert sanitize(safe) == safe


WIDTHS = [
    ("a\u200db\u200d海", "ab海"),
    ("👩\u200d👧 ❤\ufe0f 1\ufe0f\u20e3", "👩👧 ❤ 1\u20e3"),
    ("👍🏽🏿 🏻", "👍 "),
    ("🇩🇪🇫", "DEF"),
    ("so\u00adft \u3164x", "soft x"),
    ("\U00018d1f \uffff 🩷", "\ufffd \ufffd 🩷"),
    ("\u0301a\u0301 \u0301b\n\u1161c", "a\u0301 b\nc"),
    ("Z" + "\u0301" * 400, "Z" + "\u0301" * 5),
    ("हिन्दी ภาษาไทย العربية ĩ", "हिन्दी ภาษาไทย العربية ĩ"),
    ("\x1b[31m\ufe0fred", "red"),
]


@pytest.mark.parametrize(("raw", "drawn"), WIDTHS)
def test_nothing_is_drawn_of_which_terminals_make_other_widths(raw, drawn):
    assert drawable(raw) == drawn
    assert drawable(drawn) == drawn


def test_what_is_copied_keeps_its_joiners():
    assert sanitize("👩\u200d👧🏽🇩🇪") == "👩\u200d👧🏽🇩🇪"


def test_one_line():
    assert one_line("  a\n\tb\x1b[1m  c ") == "a b c"


def test_vowels_in_two_parts_are_drawn_as_these() -> None:
    """Some terminals put all of a Thai SARA AM on the letter before, which may be somebody else's."""
    assert drawable("น\u0e33\u0e33") == "น\u0e4d\u0e32\u0e4d\u0e32"


def test_json_means_the_same_and_commands_no_terminal() -> None:
    text = "\x9b2J é \u202e \U000e0041 \ud800"
    written = terminal_json({"text": text})
    assert json.loads(written) == {"text": text}
    assert "é" in written
    assert sanitize(written) == written


def test_signs_before_numbers_are_no_marks() -> None:
    """An Arabic number sign is a format character by name, and drawn."""
    assert drawable("\u0600\u0661") == "\u0600\u0661"
    assert drawable("a\u0301" + "\u0600\u0661") == "a\u0301\u0600\u0661"
