"""Markdown, HTML and SVG: nothing of a chat is obeyed by whoever opens them."""

import re
import xml.etree.ElementTree as ET
from html.parser import HTMLParser
from unicodedata import combining

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pagedchat.chat.formats.html import to_html
from pagedchat.chat.formats.markdown import to_markdown
from pagedchat.chat.formats.saved_chat import FormatError, SavedChat
from pagedchat.chat.formats.svg import COLUMNS, to_svg
from pagedchat.chat.formats.written_out import written_out
from pagedchat.chat.turns import Entry, Turn
from pagedchat.chat.visible import visible

HOSTILE = [
    "<script>alert(1)</script>", "</pre></article><img src=x onerror=alert(1)>", "]]>", "<!--", "&lt;", "\"'`",
    "\x1b]0;title\x07", "\x1b[31mred", "\x9b2J", "\u202egnp.exe", "a\u2066b", "\U000e0041", "\x00", "\ud800",
    "\ufffe",
    "[link](javascript:alert(1))", "```\ncode without an end", "~~~~", "\r\n\x85\u2028", "海の上で 🌊",
    "a\u0301" * 50, "x" * 500,
]  # fmt: skip
TEXTS = st.lists(st.sampled_from(HOSTILE) | st.text(), max_size=4).map("".join)
FORBIDDEN = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\u200b\ud800-\udfff\ufeff\U000e0000-\U000e007f]"
)


def chat(title, *texts, system=None):
    roles = ("user", "assistant")
    return SavedChat(title, system, {}, tuple(Entry(Turn(roles[i % 2], text)) for i, text in enumerate(texts)))


CHATS = st.builds(
    lambda title, texts, system: chat(title, *texts, system=system), TEXTS, st.lists(TEXTS, max_size=4), TEXTS
)


class Page(HTMLParser):
    """Tags, their attributes and the text of a page."""

    def __init__(self):
        super().__init__(convert_charrefs=True)
        self.tags, self.attributes, self.texts, self.comments, self.columns = [], set(), [], [], []

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.attributes |= {name for name, _ in attrs}
        if tag == "pre":
            self.texts.append("")
        if tag == "code":
            self.columns.append("")

    def handle_data(self, data):
        if self.texts and self.tags.count("pre") > self.tags.count("/pre"):
            self.texts[-1] += data
        if self.tags and self.tags[-1] == "code":
            self.columns[-1] += data

    def handle_endtag(self, tag):
        self.tags.append(f"/{tag}")

    def handle_comment(self, data):
        self.comments.append(data)


@given(CHATS)
def test_a_page_has_no_tags_but_ours_and_says_what_was_said(saved):
    text = to_html(saved)
    assert not FORBIDDEN.search(text)
    page = Page()
    page.feed(text)
    page.close()
    assert {tag.strip("/") for tag in page.tags} <= {
        "html",
        "meta",
        "title",
        "style",
        "h1",
        "article",
        "h2",
        "pre",
        "code",
    }
    assert page.attributes <= {"lang", "charset", "http-equiv", "content", "name", "class", "dir"}
    said = ([saved.system] if saved.system else []) + [entry.turn.text for entry in saved.entries]
    assert page.texts == ["\n" + written_out(each) for each in said]  # a browser drops the first line end of a pre
    assert page.comments == []


def test_code_and_tables_of_a_page_have_letters_of_one_width_and_prose_has_not():
    code = "````py\nx < 1\n```\n\n````"
    page = Page()
    page.feed(to_html(chat("t", f"So:\n{code}\nand\n| a | b |\n|---|---|\nor | not", "~~~\nwithout an end\n\n")))
    assert page.columns == [code, "| a | b |\n|---|---|", "~~~\nwithout an end\n\n"]


@given(CHATS)
def test_a_picture_is_whole_xml_with_no_elements_but_ours(saved):
    text = to_svg(saved)
    assert not FORBIDDEN.search(text)
    root = ET.fromstring(text)
    assert {element.tag.partition("}")[2] for element in root.iter()} <= {"svg", "style", "rect", "text"}
    lines = [element.text for element in root.iter() if element.tag.endswith("text")]
    assert all(sum(not combining(char) for char in line) <= COLUMNS for line in lines)


@given(CHATS)
def test_markdown_has_nothing_that_a_terminal_obeys_and_every_turn_under_its_heading(saved):
    text = to_markdown(saved)
    assert not FORBIDDEN.search(text)
    lines = text.split("\n")
    assert len([line for line in lines if line in ("## You", "## Assistant")]) >= len(saved.entries)


def test_a_code_fence_without_an_end_is_closed():
    text = to_markdown(chat("t", "a", "```py\nx = 1", "b", "````\n```\ncode"))
    assert text.count("\n```\n") == 2  # the one that is added, and the one that is inside
    assert text.endswith("code\n````\n")


def test_what_is_not_seen_is_written_out():
    assert written_out("a\x1b[31m\x7f\u202e\x9b\x00\r\nb\r\u200d") == "a\\x1b[31m\\x7f\\u202e\\x9b\\x00\nb\n\u200d"
    assert written_out("\ud83d\u00ad\U000e0041") == "\\ud83d\\xad\\U000e0041"


@pytest.mark.parametrize(
    "char", ["\x1b", "\x07", "\x7f", "\x9b", "\u202e", "\u2066", "\ufeff", "\U000e0041", "\udc80"]
)
def test_a_file_spells_what_the_screen_spells_in_the_same_way(char):
    assert written_out(f"a{char}b") == visible(f"a{char}b").text


def test_a_picture_too_long_to_show_is_refused():
    with pytest.raises(FormatError, match=r"20,00\d lines; a picture may have 20,000"):
        to_svg(chat("t", "y\n" * 20_000, "x"))
