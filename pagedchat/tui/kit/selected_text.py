"""How selected text looks, so that it can be read in every theme. Knows no transcript."""

from rich.color import ColorType
from rich.style import Style
from textual.color import Color
from textual.screen import Screen


def selection_style(screen: Screen[object]) -> Style:
    """Black or white, whichever is seen better, on the theme's own colour for what is selected.

    Textual's themes leave the foreground transparent; as a plain style that is the colour of the background.
    Themes of the terminal's own colours name a pair, which stays.
    """
    style = screen.get_component_rich_style("screen--selection")
    back = style.bgcolor
    if back is None or back.type is not ColorType.TRUECOLOR:
        return style
    return style + Style(color=Color.from_rich_color(back).get_contrast_text(1).rich_color)
