"""Kinds of cells to coloured text, for every zoom level of the pool map."""

from collections.abc import Iterable, Sequence
from itertools import groupby

from rich.segment import Segment
from rich.style import Style
from textual.color import Color

from pagedchat.engine.mirror import CacheMirror
from pagedchat.tui.widgets.block_cells import glyph
from pagedchat.tui.widgets.block_layout import BlockLayout, gutter_width
from pagedchat.tui.words import superscript

CURSOR = "cursor"
_FAINT = frozenset({"free", "cached", "next"})
"""Blocks not in use are signs on the panel's background; those in use are filled."""
_SHADES = frozenset("░▓▒█")
"""Signs that fill their cell by themselves."""


class BlockPaint:
    """Draws with the colours of one theme: `colors` has one for every kind, for `cursor`, `gutter` and `none`."""

    def __init__(self, colors: dict[str, Color]) -> None:
        self.colors = colors
        self._styles: dict[tuple[str, str], Style] = {}

    def sign_style(self, kind: str) -> Style:
        """For a kind's sign in a legend."""
        return self._style((kind, ""), self.colors[kind], None)

    def gutter(self, layout: BlockLayout, cell: int) -> Segment:
        """The id of a line's first block."""
        width = gutter_width(layout.num_blocks) - 1
        return Segment(f"{cell * layout.blocks_per_cell:0{width}d} ", self.sign_style("gutter"))

    def halves(self, kinds: Sequence[str], per_row: int, cursor: int) -> Iterable[Segment]:
        """Two rows of cells in one line of half blocks; the cursor takes its cell's colour."""
        shown = list(kinds)
        if cursor >= 0:
            shown[cursor] = CURSOR
        upper, lower = shown[:per_row], shown[per_row:]
        lower += ["none"] * (len(upper) - len(lower))
        for pair, run in groupby(zip(upper, lower, strict=True)):
            style = self._style(pair, self.colors[pair[0]], self.colors[pair[1]])
            yield Segment("▀" * sum(1 for _ in run), style)

    def cells(self, kinds: Sequence[str], width: int, cursor: int) -> Iterable[Segment]:
        """Cells of one or two columns."""
        for (kind, chosen), run in groupby((kind, index == cursor) for index, kind in enumerate(kinds)):
            sign = glyph(kind)
            text = sign * width if sign in _SHADES else sign.ljust(width)
            yield Segment(text * sum(1 for _ in run), self._cell_style(kind, chosen, shaded=True))

    def tiles(self, kinds: Sequence[str], first: int, mirror: CacheMirror, cursor: int) -> Iterable[Segment]:
        """Cells with the block's id and a sign: just copied, next out, or the ref count of a shared block."""
        width = gutter_width(mirror.num_blocks) - 1
        for index, kind in enumerate(kinds):
            refs = mirror.ref_counts[first + index]
            sign = glyph(kind) if kind in ("copied", "next") else superscript(refs)[-1] if refs > 1 else " "
            yield Segment(f"{first + index:0{width}d}{sign}", self._cell_style(kind, index == cursor, shaded=False))
            yield Segment(" ")

    def _cell_style(self, kind: str, chosen: bool, shaded: bool) -> Style:
        color = self.colors[CURSOR if chosen else kind]
        if not chosen and (kind in _FAINT or (shaded and glyph(kind) in _SHADES)):
            return self.sign_style(kind)
        return self._style((kind, CURSOR if chosen else "filled"), color.get_contrast_text(0.9), color)

    def _style(self, key: tuple[str, str], color: Color, background: Color | None) -> Style:
        style = self._styles.get(key)
        if style is None:
            behind = None if background is None else background.rich_color
            style = self._styles[key] = Style.from_color(color.rich_color, behind)
        return style
