import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len

from pagedchat.view.chats import wrap as wrapping
from pagedchat.view.chats.wrap import wrap


def rows(text, width):
    return [row.text for row in wrap(text, width)]


@pytest.mark.parametrize(
    ("text", "width", "expected"),
    [
        ("", 10, [""]),
        ("short", 10, ["short"]),
        ("one two three", 8, ["one two", "three"]),
        ("a\n\nb", 10, ["a", "", "b"]),
        ("abcdefghij", 4, ["abcd", "efgh", "ij"]),
        ("ab cdefghij", 4, ["ab", "cdef", "ghij"]),
        ("海の上で雨", 4, ["海の", "上で", "雨"]),
        ("a海海", 4, ["a海", "海"]),
        ("    indented text", 10, ["indented", "text"]),
        ("  indented text", 10, ["  indented", "text"]),
    ],
)
def test_wrap(text, width, expected):
    assert rows(text, width) == expected


@given(st.text(alphabet="ab 海🌊\n", max_size=80), st.integers(2, 20))
def test_rows_fit_and_join_to_the_text_again(text, width):
    wrapped = wrap(text, width)
    assert all(cell_len(row.text) <= width for row in wrapped)
    joined = "".join(row.joiner + row.text for row in wrapped).removeprefix("\n")
    assert _without_line_ends(joined) == _without_line_ends(text)


@given(st.text(st.characters(max_codepoint=0x2E7F), min_size=1, max_size=80), st.integers(2, 20))
def test_text_without_ideographs_is_wrapped_as_if_it_might_have_some(text, width):
    line = text.replace("\n", " ")
    plain = list(wrapping._wrap_line(line, width))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(wrapping, "_FIRST_IDEOGRAPH", "")
        assert list(wrapping._wrap_line(line, width)) == plain


def _without_line_ends(text):
    """Spaces at the end of a line may be left out; nothing else may."""
    return [line.rstrip(" ") for line in text.split("\n")]


@pytest.mark.parametrize("width", range(2, 12))
def test_spaces_at_the_end_of_a_wrapped_line_are_not_lost(width: int) -> None:
    text = "one two three   \nfour  \n\n  five  "
    assert "".join(row.joiner + row.text for row in wrap(text, width)) == "\n" + text


def test_an_accent_never_begins_a_row():
    assert rows("日本\u0301語", 4) == ["日本\u0301", "語"]
    assert rows("海海\u0301b海", 4) == ["海海\u0301", "b海"]
