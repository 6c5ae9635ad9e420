"""A reply while it is written: what is finished stays, thoughts are folded, long blocks do not grow dear."""

import pytest

from pagedchat.view.markdown import stream
from pagedchat.view.markdown.stream import MAX_LINES, MarkdownDocument


def document(text, *, finished=True, **options):
    made = MarkdownDocument(40, **options)
    made.update(text, finished=finished)
    return made


def texts(made):
    return [row.text for row in made.rows]


def test_finished_rows_are_made_once():
    made = MarkdownDocument(40)
    made.update("# Title\n\none\n\ntwo\n", finished=False)
    before = made.rows[:3]
    assert made.update("# Title\n\none\n\ntwo\nand", finished=False) == 5
    assert all(after is row for after, row in zip(made.rows, before, strict=False))
    assert texts(made) == ["Title", "", "one", "", "two", "and"]


def test_an_underline_still_makes_a_heading_of_the_open_paragraph():
    made = document("one\n\ntwo\n--", finished=False)
    assert texts(made) == ["one", "", "two"]
    made.update("one\n\ntwo\n--x", finished=False)
    assert texts(made) == ["one", "", "two", "--x"]


@pytest.mark.parametrize(
    ("line", "start"), [("- item {}\n", ""), ("> line {}\n", ""), ("row {}\n", ""), ("x = {}\n", "```py\n")]
)
def test_a_long_block_is_not_parsed_again_and_again(line, start, monkeypatch):
    parsed = []
    real = stream.top_blocks
    monkeypatch.setattr(stream, "top_blocks", lambda drawn: parsed.append(len(drawn.text)) or real(drawn))
    made = MarkdownDocument(40)
    text = start
    for number in range(3 * MAX_LINES):
        text += line.format(number)
        made.update(text, finished=False)
    assert max(parsed) <= 2 * MAX_LINES * len(line.format(1000))
    assert len(made.rows) >= 3 * MAX_LINES


def test_code_is_coloured_again_when_its_end_is_known():
    text = "```js\n/* a\nb */ c\n"
    open_row, closed_row = document(text, finished=False).rows[2], document(text + "```\n", finished=False).rows[2]
    assert open_row.text == closed_row.text
    assert closed_row.pieces[1].style == "comment"
    assert open_row.pieces[1].style != "comment"


def test_a_fence_that_may_be_closing_is_not_drawn_as_code():
    assert texts(document("```\na\n``", finished=False)) == [" code", " a"]
    assert texts(document("```\na\n``x", finished=False)) == [" code", " a", " ``x"]


# --- thoughts ---------------------------------------------------------------------------------------

THOUGHT = "<think>\nFirst this,\nthen that.\n</think>\n\nThe answer."


def test_a_thought_is_one_row_with_its_length():
    made = document(THOUGHT)
    assert texts(made) == ["► thought · 4 words", "", "The answer."]
    (piece,) = made.rows[0].pieces
    assert THOUGHT[piece.start : piece.end] == THOUGHT.partition("\n\n")[0]


def test_an_open_thought_counts_as_it_grows():
    assert texts(document("<think>\nFirst th", finished=False)) == ["► thinking · 2 words"]
    assert texts(document("<think>\nFirst this,\nthen", finished=False)) == ["► thinking · 3 words"]
    assert texts(document("<thi", finished=False)) == [""]
    assert texts(document("<thi")) == ["<thi"]


def test_thoughts_are_opened_by_a_setting_and_one_by_one():
    opened = ["▼ thought · 4 words", "First this,", "then that.", "", "The answer."]
    assert texts(document(THOUGHT, keep_open=True)) == opened
    assert texts(document(THOUGHT, toggled=frozenset({0}))) == opened
    assert texts(document(THOUGHT, keep_open=True, toggled=frozenset({0})))[0] == "► thought · 4 words"
    assert [document(THOUGHT).thought_at(row) for row in range(3)] == [0, None, None]


def test_an_end_without_a_beginning_makes_a_thought_of_all_before():
    made = MarkdownDocument(40)
    made.update("Hm, # let me see\n\n- a\n", finished=False)
    assert len(made.rows) == 3
    assert made.update("Hm, # let me see\n\n- a\n</think>\nYes.", finished=False) == 0
    assert texts(made) == ["► thought · 7 words", "", "Yes."]


def test_tags_in_code_and_in_mid_sentence_are_text():
    assert texts(document("```\n<think>\n```\nuse <think> and </think>")) == [
        " code", " <think>", "use <think> and </think>",
    ]  # fmt: skip


def test_a_thought_that_never_ends_is_all_of_it():
    assert texts(document("<think>\n# one\ntwo")) == ["► thought · 3 words"]
    assert texts(document("Before\n<reasoning>so</reasoning> after")) == [
        "Before",
        "",
        "► thought · 1 word",
        "",
        "after",
    ]
