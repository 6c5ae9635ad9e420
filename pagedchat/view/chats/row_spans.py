"""From characters of drawn rows to passages of turns and back; which rows differ from those drawn before. Pure."""

from collections.abc import Callable, Iterator

from pagedchat.view.chats.chat_tokens import Passage
from pagedchat.view.chats.transcript_rows import GUTTER, NO_GUTTER, Row, RowBlock

Span = tuple[int, int]
"""First character, and the one after the last."""


def passages(blocks: list[RowBlock], spans: Callable[[int, Row], Span | None]) -> Iterator[Passage]:
    """The parts of turns that `spans` chooses: a row's index and the row -> a span of its text."""
    first = 0
    for block in blocks:
        if block.turn >= 0:
            for index, (row, start) in enumerate(zip(block.rows, block.starts(), strict=True), first):
                span = spans(index, row) if start >= 0 else None
                if span is not None and span[0] < span[1]:
                    yield Passage(block.turn, start + span[0], start + span[1])
        first += len(block.rows)


def spans_by_row(blocks: list[RowBlock], wanted: list[Passage]) -> dict[int, list[Span]]:
    """Row index -> spans of its text that lie in the passages."""
    found: dict[int, list[Span]] = {}
    first = 0
    for block in blocks:
        parts = [passage for passage in wanted if passage.turn == block.turn]
        for index, (row, start) in enumerate(zip(block.rows, block.starts(), strict=True) if parts else (), first):
            spans = [(max(0, part.start - start), min(len(row.text), part.end - start)) for part in parts]
            if start >= 0 and (spans := [span for span in spans if span[0] < span[1]]):
                found[index] = spans
        first += len(block.rows)
    return found


def text_span(row: Row, span: Span) -> Span:
    """A span of the drawn row (gutter included, -1: to the end) as a span of its text."""
    gutter = 0 if row.kind in NO_GUTTER else GUTTER
    start, end = span
    length = len(row.text)
    return min(length, max(0, start - gutter)), length if end == -1 else min(length, max(0, end - gutter))


def num_same(old: list[RowBlock], new: list[RowBlock]) -> int:
    """Leading blocks that were taken over."""
    for index, (before, after) in enumerate(zip(old, new, strict=False)):
        if before is not after:
            return index
    return min(len(old), len(new))


def first_difference(old: list[Row], new: list[Row]) -> int:
    """Index of the first row that is another one."""
    for index, (before, after) in enumerate(zip(old, new, strict=False)):
        if before != after:
            return index
    return min(len(old), len(new))
