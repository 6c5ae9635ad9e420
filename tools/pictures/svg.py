"""Rows of a terminal as an SVG: one picture, or a film that goes round. Every look of a row is in it once.

A film needs no script: each look of a row is shown by a CSS animation at its times, so that it also moves where an
SVG is only an image.
"""

from collections import defaultdict
from collections.abc import Sequence
from html import escape

from tools.pictures.rows import Row, Run

WIDTH, HEIGHT = 8.4, 18.0
"""Of a cell, in units of the picture."""
NO_BREAK_SPACE = "\u00a0"
_FONT = 14
_MARGIN = 12
_UNDERLINED = 'text-decoration="underline" '
_STYLE = f"text{{font:{_FONT}px 'DejaVu Sans Mono',Menlo,Consolas,monospace}}"


def picture(rows: Sequence[Row]) -> str:
    """One moment."""
    return film([(1.0, rows)])


def film(frames: Sequence[tuple[float, Sequence[Row]]]) -> str:
    """Moments and how many seconds each is shown, over and over; all of the same size.

    Raises:
        ValueError: there are none, or they differ in size.
    """
    if not frames or len({_size(rows) for _, rows in frames}) != 1:
        raise ValueError("a film has frames of one size")
    columns, lines = _size(frames[0][1])
    palette = _Palette()
    body: list[str] = []
    moves: list[str] = []
    for line in range(lines):
        for look, shown in _looks([rows[line] for _, rows in frames]).items():
            drawn = _draw(look, line, palette)
            if len(shown) == len(frames):
                body.append(drawn)
            else:
                name = f"m{len(moves)}"
                moves.append(_movement(name, [seconds for seconds, _ in frames], shown))
                body.append(f'<g class="{name}">{drawn}</g>')
    width, height = columns * WIDTH + 2 * _MARGIN, lines * HEIGHT + 2 * _MARGIN
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:g} {height:g}">\n'
        f"<style>{_STYLE}{palette.rules()}{''.join(moves)}</style>\n"
        f'<rect width="{width:g}" height="{height:g}" rx="8" fill="{_ground(frames[0][1])}"/>\n'
        f'<g transform="translate({_MARGIN} {_MARGIN})">\n' + "\n".join(body) + "\n</g>\n</svg>\n"
    )


def _size(rows: Sequence[Row]) -> tuple[int, int]:
    return max((sum(run.cells for run in row) for row in rows), default=0), len(rows)


def _looks(rows: Sequence[Row]) -> dict[Row, set[int]]:
    """What a line looks like -> in which frames."""
    found: dict[Row, set[int]] = defaultdict(set)
    for index, row in enumerate(rows):
        found[row].add(index)
    return found


class _Palette:
    """Colours by short class names."""

    def __init__(self) -> None:
        self._names: dict[tuple[str, bool], str] = {}

    def name(self, color: str, *, bold: bool = False) -> str:
        return self._names.setdefault((color, bold), f"c{len(self._names)}")

    def rules(self) -> str:
        return "".join(
            f".{name}{{fill:{color}{';font-weight:bold' if bold else ''}}}"
            for (color, bold), name in self._names.items()
        )


def _draw(row: Row, line: int, palette: _Palette) -> str:
    top = line * HEIGHT
    parts = [
        f'<rect class="{palette.name(color)}" x="{first * WIDTH:g}" y="{top:g}" width="{cells * WIDTH:g}" '
        f'height="{HEIGHT + 0.3:g}"/>'
        for first, cells, color in _grounds(row)
    ]
    return "".join(parts) + "".join(_text(run, top, palette) for run in row if run.text.strip())


def _grounds(row: Row) -> list[tuple[int, int, str]]:
    merged: list[tuple[int, int, str]] = []
    for run in row:
        if merged and merged[-1][2] == run.background:
            first, cells, color = merged[-1]
            merged[-1] = first, cells + run.cells, color
        else:
            merged.append((run.column, run.cells, run.background))
    return merged


def _text(run: Run, top: float, palette: _Palette) -> str:
    """Without blanks around it, and with such inside that no viewer makes fewer of."""
    text = run.text.strip(" ")
    first = run.column + len(run.text) - len(run.text.lstrip(" "))
    cells = run.cells - (len(run.text) - len(text))
    return (
        f'<text class="{palette.name(run.color, bold=run.bold)}" x="{first * WIDTH:g}" y="{top + 13.5:g}" '
        f'{_UNDERLINED if run.underline else ""}textLength="{cells * WIDTH:g}" lengthAdjust="spacingAndGlyphs">'
        f"{escape(text.replace(' ', NO_BREAK_SPACE))}</text>"
    )


def _movement(name: str, seconds: Sequence[float], shown: set[int]) -> str:
    """When a look is to be seen, in parts of the whole."""
    whole, at, steps = sum(seconds), 0.0, []
    for index, length in enumerate(seconds):
        if index == 0 or (index in shown) != (index - 1 in shown):
            steps.append(f"{100 * at / whole:.3f}%{{visibility:{'visible' if index in shown else 'hidden'}}}")
        at += length
    return f"@keyframes {name}{{{''.join(steps)}}}.{name}{{animation:{name} {whole:g}s step-end infinite}}"


def _ground(rows: Sequence[Row]) -> str:
    return next((run.background for row in rows for run in row), "#000000")
