"""Terminals of sixteen colours: light grey on white, all that is left there of muted text, becomes dark grey.

Rich takes the nearest of the sixteen for each colour by itself, so that text and ground can become alike.
"""

from functools import lru_cache

from rich.color import Color as RichColor
from rich.color import ColorSystem
from rich.segment import Segment
from rich.style import Style
from textual.color import Color
from textual.filter import LineFilter

_LIGHT = frozenset({7, 15})
"""Light grey and white."""
_DARK_GREY = Style(color=RichColor.from_ansi(8))


class FewColours(LineFilter):
    """Looks at a line as such a terminal will show it."""

    def apply(self, segments: list[Segment], background: Color) -> list[Segment]:
        """One line."""
        return [Segment(text, _legible(style), control) for text, style, control in segments]


@lru_cache(4096)
def _legible(style: Style | None) -> Style | None:
    if style is None or style.color is None or style.bgcolor is None or style.reverse:
        return style
    alike = {_of_sixteen(style.color), _of_sixteen(style.bgcolor)} <= _LIGHT
    return style + _DARK_GREY if alike else style


def _of_sixteen(color: RichColor) -> int | None:
    return color.downgrade(ColorSystem.STANDARD).number
