"""One colour for each owner of blocks, the same in every panel.

The hues are spread around the theme's own primary colour, so that every theme gives a palette that fits it.
Terminals of 256 colours show the nearest of theirs: the palette is chosen so that there, too, no two owners look
the same.
"""

from rich.color import ColorSystem
from textual.color import Color
from textual.theme import Theme

NUM_COLORS = 9

_GOLDEN = 0.381966
"""Steps of the golden angle keep neighbours apart, however many there are."""
_HUE_STEPS = 50
_LIGHTNESS_STEPS = (0.0, 0.12, -0.12)
"""How a colour that another owner has already is moved away from it: by a step of the hue, or by one of these."""


def owner_colors(theme: Theme) -> list[Color]:
    """`NUM_COLORS` colours, of equal weight against the theme's background."""
    hue, saturation, _ = Color.parse(theme.primary).hsl
    lightness = 0.66 if theme.dark else 0.42
    saturation = min(0.75, max(0.45, saturation))
    colors: list[Color] = []
    for index in range(NUM_COLORS):
        colors.append(_unlike(colors, (hue + index * _GOLDEN) % 1.0, saturation, lightness))
    return colors


def owner_color(colors: list[Color], number: int) -> Color:
    """The owner's colour."""
    return colors[(number - 1) % len(colors)]


def index_of_256(color: Color) -> int | None:
    """The colour that a terminal of 256 colours shows for it."""
    return color.rich_color.downgrade(ColorSystem.EIGHT_BIT).number


def _unlike(others: list[Color], hue: float, saturation: float, lightness: float) -> Color:
    """The colour nearest to the one asked for that none of the others has on 256 colours."""
    taken = {index_of_256(other) for other in others}
    candidates = [
        Color.from_hsl((hue + step / _HUE_STEPS) % 1.0, saturation, lightness + lighter)
        for step in range(_HUE_STEPS)
        for lighter in _LIGHTNESS_STEPS
    ]
    return next((color for color in candidates if index_of_256(color) not in taken), candidates[0])
