"""What is drawn on a terminal of sixteen colours can be read."""

from types import SimpleNamespace

import pytest
from rich.color import ColorSystem
from rich.segment import Segment
from rich.style import Style
from textual.color import Color

from pagedchat.tui.kit.few_colours import FewColours
from pagedchat.tui.kit.terminal_app import TerminalApp

GROUND = Color.parse("#e0e0e0")


def shown(style):
    """Colour and ground, as such a terminal has them."""
    drawn = FewColours().apply([Segment("text", Style.parse(style))], GROUND)[0].style
    return tuple(color.downgrade(ColorSystem.STANDARD).number for color in (drawn.color, drawn.bgcolor))


@pytest.mark.parametrize("style", ["#c0c0c0 on #ffffff", "#b0b0b0 on #e0e0e0", "#ffffff on #c0c0c0"])
def test_light_text_on_a_light_ground_becomes_dark(style):
    assert shown(style)[0] == 8


@pytest.mark.parametrize("style", ["#000000 on #ffffff", "#ffffff on #000000", "#c0c0c0 on #0000ff"])
def test_what_can_be_read_stays(style):
    color, ground = style.split(" on ")
    expected = [Style.parse(each).color.downgrade(ColorSystem.STANDARD).number for each in (color, ground)]
    assert shown(style) == tuple(expected)


@pytest.mark.parametrize(("system", "wanted"), [("standard", True), ("256", False), ("truecolor", False)])
async def test_only_such_terminals_are_looked_after(system, wanted, monkeypatch):
    app = TerminalApp(ascii_only=False)
    monkeypatch.setattr(app, "console", SimpleNamespace(color_system=system))
    assert any(isinstance(each, FewColours) for each in app.get_line_filters()) == wanted
