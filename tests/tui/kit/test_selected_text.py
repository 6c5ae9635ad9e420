"""Selected text can be read in every theme, in the transcript as in the composer."""

import pytest
from rich.color import ColorType
from textual.color import Color
from textual.geometry import Offset
from textual.selection import Selection
from textual.theme import BUILTIN_THEMES

from tests.fakes_tui import READY
from tests.tui.whole_app import WIDE, pane, settle

READABLE = 3.0
"""Contrast that the accessibility guidelines ask of large text at least."""


def luminance(color):
    parts = [part / 255 for part in Color.from_rich_color(color).rgb]
    linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(one, other):
    dark, light = sorted((luminance(one), luminance(other)))
    return (light + 0.05) / (dark + 0.05)


def assert_readable(strip, text):
    [segment] = [segment for segment in strip if text in segment.text]
    front, back = segment.style.color, segment.style.bgcolor
    assert front is not None
    assert back is not None
    if back.type is not ColorType.TRUECOLOR:  # the terminal's own pair of colours
        assert front != back or segment.style.reverse
        return
    assert contrast(front, back) >= READABLE, (front, back)


@pytest.fixture
async def prompted(make_app, link):
    app = make_app(sessions=1)
    async with app.run_test(size=WIDE) as pilot:
        link.say(READY)
        await settle(pilot)
        await pilot.press(*"tale", "enter")
        await settle(pilot)
        yield app, pilot


async def test_selected_text_is_readable_in_every_theme(prompted):
    app, pilot = prompted
    here = pane(app, 1)
    here.composer.insert("abc")
    here.composer.select_all()
    for theme in BUILTIN_THEMES:
        app.theme = theme
        await pilot.pause()
        app.screen.selections = {here.transcript: Selection(Offset(0, 0), Offset(90, 5))}
        await pilot.pause()
        row = next(y for y in range(9) if "tale" in here.transcript.render_line(y).text)
        assert_readable(here.transcript.render_line(row), "tale")
        assert_readable(here.composer.render_line(0), "abc")
