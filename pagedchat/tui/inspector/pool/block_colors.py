"""The colours of the pool map in some theme: a few that style sheets name, and those that follow from them."""

from collections.abc import Callable

from textual.color import Color
from textual.theme import Theme

from pagedchat.tui.inspector.pool.block_paint import EMPTY
from pagedchat.tui.kit.owner_colors import owner_colors
from pagedchat.view.blocks.kinds import AGE_LIMITS, FULL
from pagedchat.view.owners import GLYPHS

COLORS = (
    "free", "withheld", "cached", "pinned", "shared", "copied", "next", "partial", "findable",
    "ref1", "ref2", "ref3", "ref4", "newest", "oldest", "empty", "full", "cursor", "lit", "gutter",
)  # fmt: skip
"""Colours that a theme gives by name."""
_RAMPS = (("age", len(AGE_LIMITS), "newest", "oldest"), ("fill", FULL, "empty", "full"))
"""Kinds with a number at the end: the highest one, and between which two colours they lie."""


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
    return colors
