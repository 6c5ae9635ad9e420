"""Draws the rows of a transcript: gutter, text, and the parts of the text that are selected or lit."""

from collections.abc import Callable, Iterable, Iterator

from rich.segment import Segment
from rich.style import Style
from textual.strip import Strip

from pagedchat.view.chats.row_spans import Span
from pagedchat.view.chats.transcript_rows import NO_GUTTER, Row

_RULE, _CURSOR = ("│ ", "| "), ("▌", "_")
"""With all signs, and in ASCII."""
_OWN_STYLE = frozenset({"user", "remark", "marker", "hint", "past"})
"""Kinds of rows that do not look like a reply."""


class TranscriptPaint:
    """For one set of colours.

    Args:
        base: the transcript's own style.
        component: name of a component class -> its style.
        ascii_only: whether our own signs are to be ASCII.
    """

    def __init__(self, base: Style, component: Callable[[str], Style], *, ascii_only: bool) -> None:
        self._base = base
        self._component = component
        self._rule, self._cursor = _RULE[ascii_only], _CURSOR[ascii_only]

    def row(self, row: Row, spans: Iterable[Span], chosen: Style, width: int, *, cursor: bool = True) -> Strip:
        """The row with these spans of its text (in order) in the style `chosen`; the gutter never is."""
        style = self._base + self._component(row.kind if row.kind in _OWN_STYLE else "assistant")
        segments = [*self._gutter(row), *_marked(row.text, spans, style, style + chosen)]
        if row.kind == "open" and cursor:
            segments.append(Segment(self._cursor, self._base + self._component("rule")))
        return Strip(segments).extend_cell_length(width, self._base)

    def _gutter(self, row: Row) -> Iterator[Segment]:
        if row.kind in NO_GUTTER:
            return
        speaker = "user" if row.kind == "user" else "assistant"
        yield Segment(row.speaker, self._base + self._component(f"speaker-{speaker}"))
        yield Segment(self._rule, self._base + self._component("rule"))


def _marked(text: str, spans: Iterable[Span], style: Style, chosen: Style) -> Iterator[Segment]:
    done = 0
    for start, end in spans:
        if start > done:
            yield Segment(text[done:start], style)
        if end > start:
            yield Segment(text[start:end], chosen)
        done = end
    if done < len(text):
        yield Segment(text[done:], style)
