"""Tokens as text: characters split over tokens, nonsense bytes, quotations; and where turns stand in that text."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pagedchat.view.sentences.token_text import quote, quote_token, sequence_text


def pieces(*texts: bytes) -> tuple[list[int], dict[int, bytes]]:
    return list(range(len(texts))), dict(enumerate(texts))


# --- one text ---------------------------------------------------------------------------------------


def test_ascii_tokens_stand_one_after_the_other() -> None:
    written = sequence_text(*pieces(b"And", b"", b" so", b"!"))
    assert written.text == "And so!"
    assert list(written.tokens_of(2, 4)) == [0, 1, 2]
    assert list(written.tokens_of(3, 4)) == [2]
    assert written.chars_of(2, 9) == (3, 7)
    assert written.chars_of(4, 5) == (0, 0)
    assert list(written.tokens_of(5, 5)) == []


def test_a_character_belongs_to_every_token_that_has_bytes_of_it() -> None:
    boat = "⛵".encode()
    written = sequence_text(*pieces(b"a ", boat[:1], boat[1:2], boat[2:] + b" b"))
    assert written.text == "a ⛵ b"
    assert list(written.tokens_of(2, 3)) == [1, 2, 3]
    assert written.chars_of(2, 3) == (2, 3)
    assert list(written.tokens_of(3, 5)) == [3]


def test_tokens_without_text_and_without_sense_read_as_replacement() -> None:
    assert sequence_text([7], {}).text == "\ufffd"
    assert sequence_text(*pieces(b"a", b"\xff", b"b\xe2")).text == "a\ufffdb\ufffd"
    assert sequence_text([], {}).text == ""


@given(st.lists(st.binary(max_size=5) | st.text(max_size=3).map(lambda text: text.encode("utf-8", "ignore"))))
def test_every_character_has_a_token_and_every_token_its_characters(parts: list[bytes]) -> None:
    written = sequence_text(*pieces(*parts))
    assert written.text == b"".join(parts).decode("utf-8", "replace")
    for at in range(len(written.text)):
        tokens = written.tokens_of(at, at + 1)
        assert tokens
        assert all(written.starts[token] <= at < written.ends[token] or not parts[token] for token in tokens)


# --- quotations -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "width", "quoted"),
    [
        (b" and so", 20, '" and so"'),
        (b"a\nb\r\nc", 20, '"a¶b¶c"'),
        (b"\x1b[31mred\x1b]0;title\x07", 20, '"red"'),
        (b"twelve cells", 10, '"twelve …"'),
        ("日本語".encode(), 7, '"日本…"'),
        ("日本語".encode()[:4], 9, '"日\ufffd"'),
        (b"abc", 2, '""'),
    ],
)
def test_quotations_fit_and_command_nothing(text: bytes, width: int, quoted: str) -> None:
    assert quote([0], {0: text}, width) == quoted


def test_an_ascii_quotation_uses_no_signs() -> None:
    assert quote([0], {0: b"a\nb and more"}, 9, ascii_only=True) == '"a\\nb a."'


# --- turns ------------------------------------------------------------------------------------------


NASTY = b"\x1b[31mred\x07"


@pytest.mark.parametrize(
    ("text", "quoted"),
    [
        (b" and", '" and"'),
        (b'say "hi"\\', r'"say \"hi\"\\"'),
        (b"\n\t\r", r'"\n\t\r"'),
        (NASTY, r'"\x1b[31mred\x07"'),
        ("漢字é".encode(), '"漢字é"'),
        ("漢".encode()[:2], r'"\xe6\xbc"'),
        ("a\u202eb\u200bc\U000e0041".encode(), r'"a\u202eb\u200bc\U000e0041"'),
        (b"", '""'),
    ],
)
def test_a_token_is_quoted_so_that_nothing_is_hidden_or_obeyed(text: bytes, quoted: str) -> None:
    assert quote_token(text) == quoted
