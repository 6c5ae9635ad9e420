"""What Markdown looks like, as rows of text."""

import pytest

from pagedchat.chat.visible import visible
from pagedchat.view.markdown.blocks import markdown_rows
from pagedchat.view.markdown.pieces import copied


def drawn(text, width=30):
    return [row.text for row in markdown_rows(visible(text), 0, width, finished=True)]


def styles(text, width=60):
    """Drawn text -> its style."""
    rows = markdown_rows(visible(text), 0, width, finished=True)
    return {piece.text: piece.style for row in rows for piece in row.pieces}


@pytest.mark.parametrize(
    ("text", "rows"),
    [
        ("# One\n## Two ##\nThree\n===", ["One", "Two", "Three"]),
        ("a\nb\n\n\nc", ["a", "b", "", "c"]),
        ("- a\n- b\n\n- c\n  1. d\n  2) e", ["• a", "• b", "", "• c", "  1. d", "  2) e"]),
        ("7. seven\n8. eight", ["7. seven", "8. eight"]),
        ("- [ ] to do\n-", ["• [ ] to do", "•"]),
        ("> a\n> > b\nlazy", ["│ a", "│ │ b", "│ │ lazy"]),
        ("> a\n>\n> b", ["│ a", "│ ", "│ b"]),
        ("- long words wrap under it", ["• long words", "  wrap under", "  it"]),
        ("***", ["──────────────"]),
        ("```py\nx = 1\n\ny\n```\nend", [" py", " x = 1", " ", " y", "end"]),
        ("```\n  in\n", [" code", "   in"]),
        ("    four\n    five", [" four", " five"]),
        ("x [a](b.c) y", ["x a (b.c) y"]),
        ("![alt](p.png \"t\")", ["alt (p.png ", "\"t\")"]),
        ("<http://a.b> \\* &amp; <b>x", ["http://a.b *", "&amp; <b>x"]),
        ("[r]: http://a.b", ["[r]:", "http://a.b"]),
        ("a  \nb\\\nc", ["a", "b", "c"]),
    ],
)  # fmt: skip
def test_rows(text, rows):
    assert [row.rstrip() if row != "│ " else row for row in drawn(text, 14)] == [
        row.rstrip() if row != "│ " else row for row in rows
    ]


def test_emphasis_code_and_links_have_styles():
    found = styles("**b** *i* ***bi*** ~~s~~ `c` [l](u) # no")
    assert found["b"] == "strong"
    assert found["i"] == "emphasis"
    assert found["bi"] in ("emphasis strong", "strong emphasis")
    assert found["s"] == "strike"
    assert found["c"] == "code"
    assert found["l"] == "link"
    assert found["u)"] == "url"
    assert styles("# a *b*")["b"] == "heading1 emphasis"


TABLE = "| name | size |\n|:-----|-----:|\n| 海の上 | 1 |\n| b `c\\|d` | 22 |\n"


def test_a_table_has_columns_that_line_up():
    assert drawn(TABLE) == ["name   │ size", "───────┼─────", "海の上 │    1", "b c|d  │   22"]


def test_a_table_is_wrapped_within_its_cells():
    rows = drawn("| a | b |\n|---|---|\n| one two three | four five |\n", 16)
    assert rows == ["a       │ b", "────────┼───────", "one two │ four", "three   │ five"]


def test_a_table_without_room_for_columns_is_a_list_of_cells():
    assert drawn("|aaaa|bbbb|cccc|\n|-|-|-|\n|1|2|3|\n", 8) == ["aaaa", "bbbb", "cccc", "───", "1", "2", "3", "───"]


def test_what_a_table_would_drop_is_drawn_as_it_was_written():
    assert drawn("|a|\n|-|\n|1|lost|\n") == ["|a|", "|-|", "|1|lost|"]
    assert drawn("|a|\n|-|\n|1|lost|\n|2|\n") == ["|a|", "|-|", "|1|lost|", "|2|"]


def test_borders_are_not_copied_and_columns_are_tabs():
    rows = markdown_rows(visible("> quoted\n\n" + TABLE + "\n```\ncode\n```"), 0, 30, finished=True)
    texts = [copied(row.pieces, 0, len(row.text)) for row in rows]
    assert texts == ["quoted", "", "name\tsize", "", "海の上\t1", "b c|d\t22", "", "", "code"]


def test_an_accent_without_its_letter_is_not_drawn():
    """It would change the cell on its left."""
    assert drawn("**\u0301a** `\u0301`") == ["a "]


def test_deep_nesting_leaves_room_for_text():
    assert all(len(row) <= 12 for row in drawn("> " * 40 + "deep down here", 12))
    assert "deep" in " ".join(drawn("> " * 40 + "deep down here", 12))
