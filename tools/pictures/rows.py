"""What an app has on its screen, as rows of coloured runs of text. Draws nothing."""

from typing import NamedTuple

from rich.segment import Segment
from rich.style import Style
from rich.terminal_theme import SVG_EXPORT_THEME
from textual.app import App


class Run(NamedTuple):
    """Neighbouring cells that look the same."""

    column: int
    cells: int
    text: str
    color: str
    """As `#rrggbb`."""
    background: str
    bold: bool
    underline: bool = False


Row = tuple[Run, ...]


def rows_of(app: App[None]) -> tuple[Row, ...]:
    """The screen as it was drawn last, from the top to the bottom."""
    strips = app.screen._compositor.render_strips()
    return tuple(_row(list(strip)) for strip in strips)


def _row(segments: list[Segment]) -> Row:
    runs: list[Run] = []
    column = 0
    for segment in segments:
        runs.append(Run(column, segment.cell_length, segment.text, *_look(segment.style or Style())))
        column += segment.cell_length
    return tuple(run for run in runs if run.cells)


def _look(style: Style) -> tuple[str, str, bool, bool]:
    color = _hex(style, "color", foreground=True)
    background = _hex(style, "bgcolor", foreground=False)
    if style.reverse:
        color, background = background, color
    return color, background, bool(style.bold), bool(style.underline)


def _hex(style: Style, which: str, *, foreground: bool) -> str:
    color = getattr(style, which)
    if color is None or color.is_default:
        triplet = SVG_EXPORT_THEME.foreground_color if foreground else SVG_EXPORT_THEME.background_color
    else:
        triplet = color.get_truecolor(SVG_EXPORT_THEME, foreground=foreground)
    return triplet.hex
