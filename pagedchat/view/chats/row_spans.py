"""From characters of drawn rows to passages of turns and back. Pure."""

from collections.abc import Callable, Iterator

from pagedchat.view.chats.chat_rows import ChatRows, Part
from pagedchat.view.chats.chat_tokens import Passage
from pagedchat.view.chats.transcript_rows import GUTTER, NO_GUTTER, Row
from pagedchat.view.markdown.pieces import drawn_spans, source_span

Span = tuple[int, int]
"""First character, and the one after the last."""


def passages(chat: ChatRows, first: int, last: int, spans: Callable[[int, Row], Span | None]) -> Iterator[Passage]:
    """The parts of turns that `spans` chooses of rows `first` to `last`: a row's index and the row -> a span.

    What is chosen of neighbouring rows is one part, with the line ends and the markup between them.
    """
    for part in chat.parts:
        if part.turn < 0 or part.first >= last or part.first + part.num_rows <= first:
            continue
        found: Span | None = None
        for index in range(max(first, part.first), min(last, part.first + part.num_rows)):
            row = chat.rows[index]
            span = spans(index, row)
            source = source_span(row.pieces, *span) if span is not None and span[0] < span[1] else None
            if source is not None:
                found = (min(found[0], source[0]), max(found[1], source[1])) if found else source
        if found is not None and found[0] < found[1]:
            yield Passage(part.turn, *found)


def spans_by_row(chat: ChatRows, wanted: list[Passage]) -> dict[int, list[Span]]:
    """Row index -> spans of its text that lie in the passages; of markup alone what stands behind it."""
    found: dict[int, list[Span]] = {}
    for part in chat.parts_of([passage.turn for passage in wanted]):
        for passage in wanted:
            if passage.turn != part.turn:
                continue
            lit = dict(_lit(chat, part, passage.start, passage.end)) or _next(chat, part, passage.start)
            for index, spans in lit.items():
                found[index] = sorted({*found.get(index, ()), *spans})
    return found


def _lit(chat: ChatRows, part: Part, start: int, end: int) -> Iterator[tuple[int, list[Span]]]:
    for index in range(part.first, part.first + part.num_rows):
        if spans := [*drawn_spans(chat.rows[index].pieces, start, end)]:
            yield index, spans


def _next(chat: ChatRows, part: Part, start: int) -> dict[int, list[Span]]:
    """The first drawn character behind a place at which nothing is drawn."""
    for index in range(part.first, part.first + part.num_rows):
        for piece in chat.rows[index].pieces:
            if piece.start >= start and piece.text:
                return dict(_lit(chat, part, piece.start, piece.start + 1))
    return {}


def text_span(row: Row, span: Span) -> Span:
    """A span of the drawn row (gutter included, -1: to the end) as a span of its text."""
    gutter = 0 if row.kind in NO_GUTTER else GUTTER
    start, end = span
    length = len(row.text)
    return min(length, max(0, start - gutter)), length if end == -1 else min(length, max(0, end - gutter))
