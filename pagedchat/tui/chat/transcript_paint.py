"""Draws the rows of a transcript: gutter, text, and the parts of the text that are selected or lit."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import groupby, pairwise

from rich.segment import Segment
from rich.style import Style
from textual.strip import Strip

from pagedchat.view.chats.row_spans import Span
from pagedchat.view.chats.transcript_rows import NO_GUTTER, Row
from pagedchat.view.markdown.pieces import Pieces

_RULE, _CURSOR = ("│ ", "| "), ("▌", "_")
"""With all signs, and in ASCII."""
_ASCII = str.maketrans({"│": "|", "─": "-", "┼": "+", "•": "*", "►": ">", "▼": "v", "·": "-"})
"""What the program draws around a model's text, and what ASCII has for it."""
_DRAWN_BY_US = frozenset({"frame", "column", "bullet", "thought"})
_OWN_STYLE = frozenset({"user", "remark", "marker", "hint", "past"})
"""Kinds of rows that do not look like a reply."""

Tint = tuple[int, int, Style]
"""Characters of a row's text, the first and the one after the last, and a style laid over theirs."""


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
        self._ascii_only = ascii_only
        self._rule, self._cursor = _RULE[ascii_only], _CURSOR[ascii_only]

    def row(
        self,
        row: Row,
        spans: Iterable[Span],
        chosen: Style,
        width: int,
        *,
        cursor: bool = True,
        tints: Sequence[Tint] = (),
    ) -> Strip:
        """The row with these spans of its text (in order) in the style `chosen`, and these tints below it; the
        gutter never is."""
        style = self._base + self._component(row.kind if row.kind in _OWN_STYLE else "assistant")
        behind = self._base
        if row.fill:
            style, behind = style + self._component(row.fill), behind + self._component(row.fill)
        runs = _tinted(self._runs(row.pieces, style), tints) if tints else self._runs(row.pieces, style)
        segments = [*self._gutter(row), *_joined(_marked(runs, spans, chosen))]
        if row.kind == "open" and cursor:
            segments.append(Segment(self._cursor, self._base + self._component("rule")))
        return Strip(segments).extend_cell_length(width, behind)

    def _gutter(self, row: Row) -> Iterator[Segment]:
        if row.kind in NO_GUTTER:
            return
        speaker = "user" if row.kind == "user" else "assistant"
        yield Segment(row.speaker, self._base + self._component(f"speaker-{speaker}"))
        yield Segment(self._rule, self._base + self._component("rule"))

    def _runs(self, pieces: Pieces, style: Style) -> Iterator[tuple[str, Style]]:
        for piece in pieces:
            text = piece.text
            if self._ascii_only and piece.style in _DRAWN_BY_US:
                text = text.translate(_ASCII)
            yield text, style + self._style(piece.style) if piece.style else style

    def _style(self, names: str) -> Style:
        """Each laid over those before."""
        style = Style()
        for name in names.split(" "):
            style += self._component(name)
        return style


def _tinted(runs: Iterable[tuple[str, Style]], tints: Sequence[Tint]) -> Iterator[tuple[str, Style]]:
    """Runs cut where a tint begins or ends; of tints over the same characters the last one counts."""
    at = 0
    for text, own in runs:
        end = at + len(text)
        edges = {at, end, *(edge for start, stop, _ in tints for edge in (start, stop) if at < edge < end)}
        for low, high in pairwise(sorted(edges)):
            found = [tint for start, stop, tint in tints if start <= low and high <= stop]
            yield text[low - at : high - at], own + found[-1] if found else own
        at = end


def _marked(runs: Iterable[tuple[str, Style]], spans: Iterable[Span], chosen: Style) -> Iterator[Segment]:
    marked = sorted(spans)
    at = 0
    for text, own in runs:
        done = 0
        for start, end in marked:
            low, high = max(done, start - at), min(len(text), end - at)
            if low < high:
                if low > done:
                    yield Segment(text[done:low], own)
                yield Segment(text[low:high], own + chosen)
                done = high
        if done < len(text):
            yield Segment(text[done:], own)
        at += len(text)


def _joined(segments: Iterable[Segment]) -> Iterator[Segment]:
    """Neighbours of one style as one: fewer to be painted."""
    for style, alike in groupby(segments, key=lambda segment: segment.style):
        yield Segment("".join([segment.text for segment in alike]), style)
