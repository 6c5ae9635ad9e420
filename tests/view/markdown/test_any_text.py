"""Whatever a model writes, in whatever pieces it comes: the rows are those of the whole text, they fit into the
pane, and every character of the source is drawn or accounted for.
"""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rich.cells import cell_len

from pagedchat.chat.sanitize import is_mark
from pagedchat.chat.visible import visible
from pagedchat.view.markdown.pieces import drawn_spans, source_span
from pagedchat.view.markdown.plain import PlainDocument
from pagedchat.view.markdown.stream import MarkdownDocument

MARKS = [
    "\n", "\n\n", "\n\n\n", " ", "    ", "\t", "# ", "## ", "- ", "* ", "+ ", "1. ", "23) ", "> ", "```",
    "````", "```py\n", "~~~", "|", "|-|-|\n", "| a | b |\n", ":-:", "---", "===", "***", "**", "*", "_", "__",
    "~~", "`", "``", "\\", "[", "](", ")", "![", "<http://a.b>", "<", ">", "&amp;", "&#27;", "<b>", "\"",
    "[a]: b\n", "[x](y \"z\")", "  \n", "- [ ] ", "<think>", "</think>", "<think>\n", "\n</think>\n",
    "<thinking>", "```\nd\n", "```\n", "</think>\n", "\n```\n", "  ```\n", "\n# a", "\n- b",
    "\n> c", "\r\n", "\r", "\u2028", "\x1b[31m", "\x9b2J", "\u202e",
    "\U000e0041", "\ufeff", "\u200d", "\ufe0f", "\ud800", "\x00", "海", "の上", "🌊", "e\u0301", "\u0301",
    "\u0301" * 7, "न्दी", "ก\u0e33", "\u00ad", "\xa0", "\u3000", "word", "a", "b2", "def f(x): return 'y'\n",
    "/* c", "*/", "'''", "x" * 40,
]  # fmt: skip
TEXTS = st.lists(st.sampled_from(MARKS) | st.characters() | st.text(max_size=4), max_size=40).map("".join)
WIDTHS = st.integers(2, 90)


def rows_of(text, width, *, finished, keep_open=False):
    document = MarkdownDocument(width, keep_open=keep_open)
    document.update(text, finished=finished)
    return document.rows


def pieces_of(rows):
    return [piece for row in rows for piece in row.pieces]


@pytest.mark.parametrize("text", ["# \n  \n# \n[a]: b\n", "\n\n# \n\t\n# \n\n\n\n[a]: b\n", "a\n \n- \n"])
def test_a_line_of_blanks_is_a_blank_line_wherever_the_stream_is_cut(text):
    whole = rows_of(text, 20, finished=True, keep_open=False)
    for cut in range(len(text)):
        document = MarkdownDocument(20, keep_open=False)
        document.update(text[:cut], finished=False)
        document.update(text, finished=True)
        assert document.rows == whole, cut


@pytest.mark.parametrize("fence", ["\xad  ```", "  `\xad``", "```\xad", "\xad  ```x"])
def test_a_fence_is_seen_as_it_is_drawn_wherever_the_stream_is_cut(fence):
    text = f"```\na\n{fence}\nb\n"
    for cut in range(len(text)):
        document = MarkdownDocument(20, keep_open=False)
        for end in (cut, len(text)):
            document.update(text[:end], finished=False)
            assert document.rows == rows_of(text[:end], 20, finished=False), cut


@given(st.data(), TEXTS, WIDTHS, st.booleans())
@settings(max_examples=500, deadline=None)
def test_a_streamed_reply_is_drawn_like_the_whole(data, text, width, keep_open):
    cuts = sorted(data.draw(st.sets(st.integers(0, len(text)), max_size=12)))
    document = MarkdownDocument(width, keep_open=keep_open)
    shown = []
    for cut in cuts:
        first = document.update(text[:cut], finished=False)
        shown[first:] = document.rows[first:]
        assert shown == document.rows == rows_of(text[:cut], width, finished=False, keep_open=keep_open)
    first = document.update(text, finished=True)
    shown[first:] = document.rows[first:]
    assert shown == document.rows == rows_of(text, width, finished=True, keep_open=keep_open)


@given(TEXTS, WIDTHS, st.booleans(), st.booleans())
@settings(max_examples=500, deadline=None)
def test_rows_fit_and_no_letter_is_lost(text, width, finished, keep_open):
    rows = rows_of(text, width, finished=True, keep_open=keep_open)
    assert all(cell_len(row.text) <= width for row in rows)
    covered = {at for piece in pieces_of(rows) if piece.start >= 0 for at in range(piece.start, piece.end)}
    assert not [char for at, char in enumerate(text) if char.isalnum() and not is_mark(char) and at not in covered]
    assert all(0 <= piece.start <= piece.end <= len(text) for piece in pieces_of(rows) if piece.start >= 0)


@given(TEXTS, WIDTHS)
@settings(max_examples=500, deadline=None)
def test_pieces_show_the_source_that_they_name(text, width):
    """What is drawn character for character is what the source has there, or what is drawn for it."""
    for piece in pieces_of(rows_of(text, width, finished=True, keep_open=True)):
        if piece.start < 0 or not piece.text.strip() or piece.style in ("frame", "thought"):
            continue
        source = text[piece.start : piece.end]
        drawn = visible("a" + source).text[1:].replace("\n", " ")
        assert piece.text in (source, drawn, "•", " (") or piece.text in drawn or "escape" in piece.style, piece


@given(TEXTS, WIDTHS)
@settings(deadline=None)
def test_nothing_that_a_terminal_obeys_is_drawn(text, width):
    for row in rows_of(text, width, finished=True, keep_open=True):
        assert all(char.isprintable() or char in "\u3000\xa0" or ord(char) > 0x9F for char in row.text)
        assert not any(
            ord(char) < 32 or 0x7F <= ord(char) <= 0x9F or char in "\u202e\u2066\ufeff" for char in row.text
        )


@given(st.data(), TEXTS, WIDTHS)
@settings(deadline=None)
def test_plain_text_is_drawn_alike_however_it_comes(data, text, width):
    whole = PlainDocument(width)
    whole.update(text, finished=True)
    document = PlainDocument(width)
    shown = []
    for cut in [*sorted(data.draw(st.sets(st.integers(0, len(text)), max_size=8))), len(text)]:
        first = document.update(text[:cut], finished=cut == len(text))
        shown[first:] = document.rows[first:]
        assert shown == document.rows
    assert shown == whole.rows
    assert all(cell_len(row.text) <= width for row in shown)
    covered = {at for piece in pieces_of(shown) for at in range(piece.start, piece.end)}
    assert not [char for at, char in enumerate(text) if char.isalnum() and not is_mark(char) and at not in covered]


@pytest.mark.parametrize("text", ["\r\n \n ", "a\r\nb", "a\r\r\nb", "\r\n\r\nc\r\n"])
@pytest.mark.parametrize("at", range(6))
def test_a_line_end_of_two_characters_is_one_wherever_it_is_cut(text, at):
    whole, document = PlainDocument(4), PlainDocument(4)
    whole.update(text, finished=True)
    document.update(text[:at], finished=False)
    document.update(text, finished=True)
    assert document.rows == whole.rows


@given(st.data(), TEXTS, WIDTHS)
@settings(deadline=None)
def test_a_source_character_leads_to_the_row_that_leads_back_to_it(data, text, width):
    rows = rows_of(text, width, finished=True, keep_open=True)
    for row in rows:
        for piece in row.pieces:
            if piece.start < 0 or not piece.text:
                continue
            spans = list(drawn_spans(row.pieces, piece.start, piece.start + 1))
            assert spans
            span = source_span(row.pieces, *spans[0])
            assert span is not None
            assert span[0] <= piece.start < span[1] or piece.start == piece.end
