"""Colours of code: alike for lines and blocks, whatever the text, and cheap for what is very long."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pagedchat.view.markdown.code import colored_code
from pagedchat.view.markdown.pieces import MAX_CODE

LANGUAGES = ["python", "js", "c", "json", "html", "bash", "diff", "yaml", "cython", "nothing", "", "tex"]


def text_of(line):
    return "".join(text for text, _ in line)


@given(
    st.lists(st.text(st.characters(exclude_characters="\n")) | st.sampled_from(["'''", "/*", "def f(): # x"])),
    st.sampled_from(LANGUAGES),
    st.booleans(),
)
@settings(deadline=None)
def test_no_character_is_lost(lines, language, finished):
    assert [text_of(line) for line in colored_code(language, lines, finished=finished)] == lines


def test_words_have_the_style_of_what_they_are():
    (line,) = colored_code("python", ["def f(x): return 'a', 1  # why"], finished=True)
    assert {("def", "keyword"), ("f", "name"), ("'a'", "string"), ("1", "number"), ("# why", "comment")} <= set(
        line
    )


@pytest.mark.parametrize("finished", [False, True])
def test_a_string_of_several_lines_is_one(finished):
    lines = colored_code("python", ['x = """one', "two", 'three"""', "y"], finished=finished)
    assert lines[1] == (("two", "string"),)
    assert lines[3] == (("y", ""),)


def test_a_comment_of_several_lines_is_one_when_it_is_finished():
    assert colored_code("js", ["/* a", "b */ c"], finished=True)[1][0] == ("b */", "comment")


def test_very_long_code_keeps_the_colours_of_its_lines():
    lines = ["/* a", "b */", *["x"] * MAX_CODE]
    assert colored_code("js", lines, finished=True) == colored_code("js", lines, finished=False)
    assert colored_code("python", ["1 " * 2000], finished=True) == [((("1 " * 2000), ""),)]


def test_a_lexer_that_breaks_leaves_plain_text(monkeypatch):
    def broken(*_):
        raise RuntimeError

    monkeypatch.setattr("pygments.lexers.data.JsonLexer.get_tokens_unprocessed", broken)
    assert colored_code("json", ["{broken: 17}"], finished=False) == [(("{broken: 17}", ""),)]
