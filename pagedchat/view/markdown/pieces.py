"""Text in pieces, each with a style and with the characters of a turn's text that it shows. Knows no Markdown."""

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from pagedchat.chat.visible import VisibleText

FRAME, PAD, COLUMN, INDENT, LABEL = "frame", "pad", "column", "indent", "label"
"""Styles of what is drawn and stands for no text: lines, room inside a table or a code block, the line between two
columns, the room before what is nested; and of the word above a block of code."""
_COPIED = {FRAME: "", PAD: "", COLUMN: "\t", LABEL: ""}
"""What is copied of them; of all else what is drawn."""
MAX_CODE = 20_000
"""Characters of a block of code that are looked at together; a longer one keeps the colours of its single lines."""


class Piece(NamedTuple):
    """Characters that are drawn side by side in one style."""

    text: str
    """Empty where source characters are accounted for and not drawn."""
    style: str = ""
    """Names of styles with spaces between them, each laid over those before."""
    start: int = -1
    """First source character that it shows; -1: it stands for none."""
    end: int = -1
    """The one after the last. Of as many characters as are drawn each shows its own; of others all show all."""

    @property
    def exact(self) -> bool:
        """Whether each drawn character shows one of the source."""
        return self.end - self.start == len(self.text)

    def cut(self, start: int, end: int) -> "Piece":
        """Drawn characters `start` to `end`; of what shows its source only as a whole each part shows all of it."""
        if start == 0 and end >= len(self.text):
            return self
        if self.start < 0 or not self.exact:
            return self._replace(text=self.text[start:end])
        return Piece(self.text[start:end], self.style, self.start + start, self.start + min(end, len(self.text)))


Pieces = tuple[Piece, ...]


def text_of(pieces: Iterable[Piece]) -> str:
    """What is drawn."""
    return "".join([piece.text for piece in pieces])


def cut(pieces: Pieces, start: int, end: int) -> Pieces:
    """Drawn characters `start` to `end`, with what is not drawn between them."""
    if len(pieces) == 1:
        return (pieces[0].cut(start, end),)
    found: list[Piece] = []
    at = 0
    for piece in pieces:
        length = len(piece.text)
        low, high = max(0, start - at), min(length, end - at)
        if low < high or (length == 0 and start <= at < end):
            found.append(piece.cut(low, high))
        at += length
        if at >= end and length:
            break
    return tuple(found)


def copied(pieces: Pieces, start: int, end: int) -> str:
    """The same as text without what is only there to be looked at."""
    return "".join([_COPIED.get(piece.style, piece.text) for piece in cut(pieces, start, end)])


def source_span(pieces: Pieces, start: int, end: int) -> tuple[int, int] | None:
    """From the first to the last source character that drawn characters `start` to `end` show, if they show any."""
    spans = [(piece.start, piece.end) for piece in cut(pieces, start, end) if piece.start >= 0]
    return (min(low for low, _ in spans), max(high for _, high in spans)) if spans else None


def drawn_spans(pieces: Pieces, start: int, end: int) -> Iterator[tuple[int, int]]:
    """Which drawn characters show source characters `start` to `end`."""
    at = 0
    for piece in pieces:
        length = len(piece.text)
        if length and piece.start >= 0 and piece.start < end and start < piece.end:
            if piece.exact:
                yield at + max(0, start - piece.start), at + min(length, end - piece.start)
            else:
                yield at, at + length
        at += length


def in_source(pieces: Pieces, drawn: VisibleText, base: int) -> Pieces:
    """Pieces whose places are those in `drawn`, with the places in a source in which that begins at `base`."""
    if not drawn.changes:
        return tuple(_moved(piece, base) for piece in pieces) if base else pieces
    return tuple(_moved(part, base) for piece in pieces for part in _split(piece, drawn))


def _moved(piece: Piece, base: int) -> Piece:
    return piece if piece.start < 0 else piece._replace(start=piece.start + base, end=piece.end + base)


def _split(piece: Piece, drawn: VisibleText) -> Iterator[Piece]:
    """Parts of which each shows its source character for character or as a whole."""
    if piece.start < 0:
        yield piece
        return
    if not piece.exact:
        yield piece._replace(start=drawn.source(piece.start), end=drawn.source_end(piece.end))
        return
    done = piece.start
    for change in drawn.changed_in(piece.start, piece.end):
        low, high = max(done, change.drawn_start), min(piece.end, change.drawn_end)
        if high <= low and change.drawn_start < change.drawn_end:
            continue
        if low > done:
            yield _part(piece, done, low, drawn.source(done))
        style = f"{piece.style} escape".strip() if change.spelled else piece.style
        yield Piece(piece.text[low - piece.start : high - piece.start], style, change.start, change.end)
        done = high
    if done < piece.end:
        yield _part(piece, done, piece.end, drawn.source(done))


def _part(piece: Piece, start: int, end: int, source: int) -> Piece:
    text = piece.text[start - piece.start : end - piece.start]
    return Piece(text, piece.style, source, source + len(text))
