"""Looks of cells to coloured text, for every zoom level of the pool map and in the colours of any theme.

One character a block tells by its sign as well as by its colour, so the map can be read without colours; a half
block has nothing but its colour, and there a mark's takes the place of the kind's.
"""

from collections.abc import Callable, Iterable, Sequence
from itertools import groupby

from rich.segment import Segment
from rich.style import Style
from textual.color import Color
from textual.theme import Theme

from pagedchat.engine.mirror import CacheMirror
from pagedchat.tui.kit.owner_colors import owner_colors
from pagedchat.view.blocks.kinds import AGE_LIMITS, FULL, IDLE, glyph
from pagedchat.view.blocks.map_layout import BlockLayout, gutter_width
from pagedchat.view.blocks.map_picture import Look
from pagedchat.view.blocks.pool_kinds import SHARES
from pagedchat.view.owners import ANOTHERS_GLYPH, GLYPHS
from pagedchat.view.sentences.words import MANY, superscript

CURSOR, LIT, EMPTY = "cursor", "lit", "none"
COLORS = (
    "free", "withheld", "cached", "pinned", "shared", "copied", "next", "partial", "findable",
    "ref1", "ref2", "ref3", "ref4", "newest", "oldest", "empty", "full", "cursor", "lit", "gutter",
)  # fmt: skip
"""Colours that a theme gives by name."""
_RAMPS = (("age", len(AGE_LIMITS), "newest", "oldest"), ("fill", FULL, "empty", "full"))
"""Kinds with a number at the end: the highest one, and between which two colours they lie."""
_SHADES = frozenset("░▓▒█ ▄")
"""Signs that fill their cell by themselves; others stand on the colour of a block that is in use."""
_FAINTEST = 0.45
"""How much of its colour a cell of several blocks has when hardly any of them are taken."""


def map_colors(color_of: Callable[[str], Color], background: Color, theme: Theme) -> dict[str, Color]:
    """A colour for all that `BlockPaint` draws.

    Args:
        color_of: name, one of `COLORS` -> colour, maybe translucent.
        background: what is behind the map.
        theme: gives the owners' colours.
    """
    colors = {EMPTY: background, **{name: background + color_of(name) for name in COLORS}}
    for kind, highest, first, last in _RAMPS:
        for step in range(highest + 1):
            colors[f"{kind}{step}"] = colors[first].blend(colors[last], step / highest)
    owners = owner_colors(theme)
    colors.update(("@" + sign, owners[index % len(owners)]) for index, sign in enumerate(GLYPHS))
    colors["@" + ANOTHERS_GLYPH] = colors["shared"].blend(background, 0.5)
    return colors


class BlockPaint:
    """Draws with the colours of one theme.

    Args:
        colors: one for every kind and mark, for `cursor`, `lit` and `gutter`; `none` is the background.
        ascii_only: whether signs are ASCII.
    """

    def __init__(self, colors: dict[str, Color], ascii_only: bool = False) -> None:
        self.colors = colors
        self.ascii_only = ascii_only
        self._styles: dict[object, Style] = {}

    def sign(self, name: str) -> Segment:
        """A kind or a mark as in a legend."""
        return Segment(glyph(name, self.ascii_only), self._style(name, self.colors[name]))

    def gutter(self, layout: BlockLayout, cell: int, *, skips: bool = False) -> Segment:
        """The id of a line's first block; with `skips` a sign that lines are left out above it."""
        width = gutter_width(layout.num_blocks) - 1
        return self.words(
            f"{cell * layout.blocks_per_cell:0{width}d}{glyph('skips', self.ascii_only) if skips else ' '}"
        )

    def words(self, text: str) -> Segment:
        """What stands in the gutter."""
        return Segment(text, self._style("gutter", self.colors["gutter"]))

    def halves(self, looks: Sequence[Look], per_row: int, cursor: int) -> Iterable[Segment]:
        """Two rows of cells in one line of half blocks; the cursor takes its cell's colour."""
        tints = [self._tint(look) for look in looks]
        if cursor >= 0:
            tints[cursor] = (CURSOR, SHARES)
        upper, lower = tints[:per_row], tints[per_row:]
        lower += [(EMPTY, SHARES)] * (len(upper) - len(lower))
        for pair, run in groupby(zip(upper, lower, strict=True)):
            style = self._styles.get(pair)
            if style is None:
                style = self._style(pair, self._color(*pair[0]), self._color(*pair[1]))
            yield Segment("▀" * sum(1 for _ in run), style)

    def cells(self, looks: Sequence[Look], width: int, cursor: int) -> Iterable[Segment]:
        """Cells of one or two columns."""
        for (look, chosen), run in groupby((look, index == cursor) for index, look in enumerate(looks)):
            sign = self._cell_sign(look)
            text = sign * width if sign in _SHADES else sign.ljust(width)
            yield Segment(text * sum(1 for _ in run), self._cell_style(look, chosen, sign in _SHADES))

    def tiles(self, looks: Sequence[Look], first: int, mirror: CacheMirror, cursor: int) -> Iterable[Segment]:
        """Cells with the block's id and a sign: its mark, or the ref count of a shared block."""
        width = gutter_width(mirror.num_blocks) - 1
        for index, look in enumerate(looks):
            sign = self._tile_sign(look, mirror.ref_counts[first + index])
            yield Segment(f"{first + index:0{width}d}{sign}", self._cell_style(look, index == cursor, shade=False))
            yield Segment(" ")

    def _cell_sign(self, look: Look) -> str:
        sign = glyph(look.mark or look.kind, self.ascii_only)
        if look.lit and sign in _SHADES:  # a shade would hide the light
            sign = glyph(look.kind, ascii_only=True)
        return sign

    def _tile_sign(self, look: Look, refs: int) -> str:
        if look.mark or look.kind == "withheld":
            return glyph(look.mark or look.kind, self.ascii_only)
        if refs < 2:
            return " "
        return glyph("shared", self.ascii_only) if self.ascii_only else (superscript(refs) if refs <= MANY else "+")

    def _tint(self, look: Look) -> tuple[str, int]:
        """What a half block is coloured by."""
        if look.lit:
            return LIT, SHARES
        return (look.mark, SHARES) if look.mark else (look.kind, look.share)

    def _color(self, name: str, share: int) -> Color:
        """A colour, fainter for a cell of which only some blocks are taken."""
        if name in IDLE or share == SHARES:
            return self.colors[name]
        return self.colors[EMPTY].blend(self.colors[name], _FAINTEST + (1 - _FAINTEST) * share / SHARES)

    def _cell_style(self, look: Look, chosen: bool, shade: bool) -> Style:
        """Blocks in use are filled, the others are signs on the panel's background, and so are shades."""
        key = (look, chosen, shade)
        style = self._styles.get(key)
        if style is None:
            style = self._styles[key] = self._new_cell_style(look, chosen, shade)
        return style

    def _new_cell_style(self, look: Look, chosen: bool, shade: bool) -> Style:
        if chosen or look.lit:
            return _filled(self.colors[CURSOR if chosen else LIT]) + Style(underline=look.lit)
        name = look.mark if look.mark in ("next", "copied") else look.kind
        color = self._color(name, look.share)
        faint = name in IDLE or name == "next" or shade
        return Style.from_color(color.rich_color) if faint else _filled(color)

    def _style(self, key: object, color: Color, background: Color | None = None) -> Style:
        style = self._styles.get(key)
        if style is None:
            behind = None if background is None else background.rich_color
            style = self._styles[key] = Style.from_color(color.rich_color, behind)
        return style


def _filled(color: Color) -> Style:
    return Style.from_color(color.get_contrast_text(0.9).rich_color, color.rich_color)
