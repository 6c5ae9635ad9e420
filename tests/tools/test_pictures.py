"""Pictures of the program: each look of a row once, shown when it was there, whatever text is in it."""

import re
from xml.etree import ElementTree

import pytest
from textual.app import App
from textual.widgets import Static

from tools.pictures.rows import Run, rows_of
from tools.pictures.svg import NO_BREAK_SPACE, film, picture

ON, OFF = "#ffffff", "#000000"


def row(text):
    return (Run(0, len(text), text, ON, OFF, False),)


def texts(svg):
    root = ElementTree.fromstring(svg)
    return [node.text.replace(NO_BREAK_SPACE, " ") for node in root.iter() if node.tag.endswith("text")]


def test_a_film_has_each_look_of_a_row_once_at_its_times():
    still, one, two = row("still "), row("first "), row("second")
    svg = film([(1.0, [still, one]), (2.0, [still, two]), (1.0, [still, one])])
    assert texts(svg) == ["still", "first", "second"]
    moves = re.findall(r"@keyframes (\w+)\{(.*?)\}\}\.\1\{animation:\1 (\d+)s step-end infinite\}", svg)
    assert [(steps + "}", seconds) for _, steps, seconds in moves] == [
        ("0.000%{visibility:visible}25.000%{visibility:hidden}75.000%{visibility:visible}", "4"),
        ("0.000%{visibility:hidden}25.000%{visibility:visible}75.000%{visibility:hidden}", "4"),
    ]
    assert "@keyframes" not in picture([still, one])


def test_text_stays_text_and_blanks_stay_where_they_are():
    (line,) = [row("  <b>&  x ")]
    svg = picture([line])
    assert texts(svg) == ["<b>&  x"]
    (node,) = [node for node in ElementTree.fromstring(svg).iter() if node.tag.endswith("text")]
    assert float(node.get("x")) == pytest.approx(2 * 8.4)
    assert float(node.get("textLength")) == pytest.approx(7 * 8.4)


@pytest.mark.parametrize("frames", [[], [(1.0, [row("a")]), (1.0, [row("a"), row("b")])]])
def test_frames_are_of_one_size(frames):
    with pytest.raises(ValueError, match="of one size"):
        film(frames)


async def test_what_an_app_shows_is_in_the_picture():
    class Small(App[None]):
        def compose(self):
            yield Static("[bold red on blue]loud[/] quiet")

    app = Small()
    async with app.run_test(size=(20, 3)):
        rows = rows_of(app)
    assert [sum(run.cells for run in line) for line in rows] == [20, 20, 20]
    loud = rows[0][0]
    assert (loud.text, loud.bold) == ("loud", True)
    assert loud.color != loud.background
    assert "loud" in texts(picture(rows))
