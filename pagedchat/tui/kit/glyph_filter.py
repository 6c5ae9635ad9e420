"""The last look at what is drawn: only signs that every terminal font has, or ASCII alone. Knows no widget."""

from rich.segment import Segment
from textual.color import Color
from textual.filter import LineFilter

from pagedchat.view.sentences.glyphs import ASCII, PLAIN


class GlyphFilter(LineFilter):
    """Exchanges signs, a cell for a cell; letters of any language stay.

    Args:
        ascii_only: whether the terminal is to get no signs but those of ASCII.
    """

    def __init__(self, *, ascii_only: bool) -> None:
        super().__init__()
        self._table = ASCII if ascii_only else PLAIN

    def apply(self, segments: list[Segment], background: Color) -> list[Segment]:
        """One line."""
        table = self._table
        return [
            segment
            if segment.text.isascii()
            else Segment(segment.text.translate(table), segment.style, segment.control)
            for segment in segments
        ]
