"""One colour and one letter for each owner of blocks, the same in every panel.

The hues are spread around the theme's own primary colour, so that every theme gives a palette that fits it.
"""

import re

from textual.color import Color
from textual.theme import Theme

GLYPHS = "123456789abcdefghijklmnopqrstuvwxyz"
NUM_COLORS = 9

_LEADING_NUMBER = re.compile(r"\d+")
_GOLDEN = 0.381966
"""Steps of the golden angle keep neighbours apart, however many there are."""


def owner_number(seq_id: int, label: str) -> int:
    """The number that people see in the label (`"2 code"` -> 2), else the sequence's own."""
    match = _LEADING_NUMBER.match(label)
    return int(match[0]) if match else seq_id


def owner_glyph(number: int) -> str:
    """`1` to `9`, then `a` to `z`, then over again."""
    return GLYPHS[(number - 1) % len(GLYPHS)]


def owner_colors(theme: Theme) -> list[Color]:
    """`NUM_COLORS` colours, of equal weight against the theme's background."""
    hue, saturation, _ = Color.parse(theme.primary).hsl
    lightness = 0.66 if theme.dark else 0.42
    saturation = min(0.75, max(0.45, saturation))
    return [Color.from_hsl((hue + index * _GOLDEN) % 1.0, saturation, lightness) for index in range(NUM_COLORS)]


def owner_color(colors: list[Color], number: int) -> Color:
    """The owner's colour."""
    return colors[(number - 1) % len(colors)]
