"""One-line texts that shrink: the header, a pane's title, the loading line. Made of plain state, never of markup.

A line is made of parts in order of importance; the least important go first when the room is short.
"""

from collections.abc import Sequence
from typing import NamedTuple

from textual.content import Content

from pagedchat.view.sentences.words import filled_cells, to_ascii

PLAIN = "$foreground"
MUTED = "$foreground 60%"
FAINT = "$foreground 40%"


class LinePart(NamedTuple):
    """A piece of a line; the one of highest `rank` is left out first, rank 0 never."""

    rank: int
    content: Content


def text(value: str, style: str = "") -> Content:
    """Plain text in one style."""
    return Content.styled(value, style)


def join(parts: Sequence[LinePart], width: int, separator: str | Content = "  ") -> Content:
    """The parts that fit into `width` cells, in their order."""
    kept = list(parts)
    between = text(separator, FAINT) if isinstance(separator, str) else separator
    while kept:
        line = between.join([part.content for part in kept])
        worst = max(part.rank for part in kept)
        if line.cell_length <= width or worst == 0:
            return line if line.cell_length <= width else line.truncate(max(0, width), ellipsis=True)
        last = max(index for index, part in enumerate(kept) if part.rank == worst)
        del kept[last]
    return Content("")


def spread(left: Content, right: Content, width: int, fill: str = " ", fill_style: str = "") -> Content:
    """`left` and `right` at the two ends of a line."""
    gap = width - left.cell_length - right.cell_length
    if gap < 1:
        return left.truncate(max(0, width), ellipsis=True)
    return Content.assemble(left, (fill * gap, fill_style), right)


def bar(share: float, cells: int, style: str) -> Content:
    """A bar `cells` wide, filled to `share` in halves of a cell."""
    filled = filled_cells(share, cells)
    return Content.assemble((filled, style), ("░" * (cells - len(filled)), FAINT))


def content_to_ascii(content: Content) -> Content:
    """The same in ASCII, a character for a character, so that every style stays where it is."""
    return Content(to_ascii(content.plain), list(content.spans))
