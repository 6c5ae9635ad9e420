"""Text as it was written costs nothing of Markdown."""

import subprocess
import sys

from pagedchat.view.markdown.plain import PlainDocument


def test_the_first_frame_loads_no_markdown():
    code = "import sys, pagedchat.tui.chat.transcript; print({'markdown_it', 'pygments'} & set(sys.modules))"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout.strip() == "set()"


def test_finished_lines_are_made_once():
    made = PlainDocument(20)
    made.update("# one\ntwo\nthr", finished=False)
    kept = made.rows[:2]
    assert made.update("# one\ntwo\nthree\n\n\nfour", finished=False) == 2
    assert [row.text for row in made.rows] == ["# one", "two", "three", "", "", "four"]
    assert all(row is before for row, before in zip(made.rows, kept, strict=False))


def test_blank_lines_at_the_end_are_not_drawn():
    made = PlainDocument(20)
    made.update("one\n\n\n", finished=True)
    assert [row.text for row in made.rows] == ["one"]
