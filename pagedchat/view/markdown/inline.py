"""The text of a paragraph, a heading or a cell as pieces: emphasis, code and links, each with where it stands.

The parser says what it found, in order, and not where. So its tokens are laid along the text again, one after the
other: whatever lies between two of them is markup of a known form, or the text is shown as it was written.
"""

import re
from bisect import bisect_right
from collections.abc import Iterator, Sequence

from markdown_it import helpers
from markdown_it.token import Token

from pagedchat.chat.sanitize import is_mark
from pagedchat.view.markdown.pieces import Piece, Pieces

_STYLES = {"strong": "strong", "em": "emphasis", "s": "strike", "link": "link"}
_BREAK = re.compile(r" *\\?\n *")
_BLANKS = re.compile(r"[ \n]*")


class MarkupUnknownError(Exception):
    """A token is not where it should be: the text is shown as it was written."""


class InlineText:
    """Text that was cut out of a source in parts, so that every character of it has one of the source.

    Args:
        text: the parts, lines among them with `\\n` between them.
        parts: where each part begins, in `text` and in the source.
    """

    def __init__(self, text: str, parts: Sequence[tuple[int, int]]) -> None:
        self.text = text
        self._starts = [start for start, _ in parts]
        self._places = [place for _, place in parts]

    def pieces(self, start: int, end: int, style: str) -> Iterator[Piece]:
        """Some characters; a line end is drawn as a space. Accents without their letter are not drawn."""
        bare = start
        while bare < end and is_mark(self.text[bare]):
            bare += 1
        if bare > start:
            yield from (piece._replace(text="") for piece in self._pieces(start, bare, style))
        yield from self._pieces(bare, end, style)

    def _pieces(self, start: int, end: int, style: str) -> Iterator[Piece]:
        part = bisect_right(self._starts, start) - 1
        while start < end:
            after = self._starts[part + 1] if part + 1 < len(self._starts) else end
            stop = min(end, after)
            place = self._places[part] + start - self._starts[part]
            yield Piece(self.text[start:stop].replace("\n", " "), style, place, place + stop - start)
            start, part = stop, part + 1


def as_written(inline: InlineText) -> list[Pieces]:
    """Lines of text without any markup found in it."""
    lines: list[Pieces] = []
    start = 0
    for line in inline.text.split("\n"):
        lines.append(tuple(inline.pieces(start, start + len(line), "")))
        start += len(line) + 1
    return lines


def inline_lines(inline: InlineText, tokens: Sequence[Token]) -> list[Pieces]:
    """Lines of pieces; where the tokens do not fit the text, as it was written."""
    try:
        return _Aligner(inline).lines(tokens)
    except MarkupUnknownError:
        return as_written(inline)


class _Aligner:
    """Lays tokens along their text."""

    def __init__(self, inline: InlineText) -> None:
        self._inline = inline
        self._text = inline.text
        self._at = 0
        self._styles: list[str] = []
        self._lines: list[list[Piece]] = [[]]
        self._label_start = 0

    def lines(self, tokens: Sequence[Token]) -> list[Pieces]:
        waiting = iter(tokens)
        for token in waiting:
            if token.type == "link_open" and token.markup == "autolink":
                self._auto_link(waiting)
            else:
                self._take(token)
        if self._text[self._at :].strip(" "):
            raise MarkupUnknownError
        return [tuple(line) for line in self._lines]

    def _take(self, token: Token) -> None:
        kind, _, way = token.type.rpartition("_")
        if token.type == "text":
            self._show(len(token.content), token.content)
        elif token.type == "text_special":
            self._skip(token.markup[: len(token.markup) - len(token.content)])
            self._show(len(token.content), token.content)
        elif token.type in ("softbreak", "hardbreak"):
            self._break()
        elif token.type == "code_inline":
            self._code(token)
        elif token.type == "image":
            self._skip("![")
            self._styles.append("link")
            self._show(len(token.content), token.content)
            self._close_link()
        elif token.type == "link_open":
            self._skip("[")
            self._styles.append("link")
            self._label_start = self._at
        elif token.type == "link_close":
            self._close_link()
        elif way == "open" and kind in _STYLES:
            self._skip(token.markup)
            self._styles.append(_STYLES[kind])
        elif way == "close" and kind in _STYLES and self._styles:
            self._skip(token.markup)
            self._styles.pop()
        else:
            raise MarkupUnknownError

    # --- along the text -----------------------------------------------------------------------------

    def _skip(self, markup: str) -> None:
        if not self._text.startswith(markup, self._at):
            raise MarkupUnknownError
        self._at += len(markup)

    def _show(self, length: int, expected: str | None = None, style: str = "") -> None:
        if expected is not None and not self._text.startswith(expected, self._at):
            raise MarkupUnknownError
        styles = " ".join(dict.fromkeys([*self._styles, *([style] if style else [])]))
        self._lines[-1] += self._inline.pieces(self._at, self._at + length, styles)
        self._at += length

    def _break(self) -> None:
        found = _BREAK.match(self._text, self._at)
        if found is None:
            raise MarkupUnknownError
        self._at = found.end()
        self._lines.append([])

    def _code(self, token: Token) -> None:
        self._skip(token.markup)
        fence = re.escape(token.markup)
        closing = re.compile(f"(?<!`){fence}(?!`)").search(self._text, self._at)
        if closing is None:
            raise MarkupUnknownError
        raw = self._text[self._at : closing.start()].replace("\n", " ")
        margin = (len(raw) - len(token.content)) // 2
        if raw[margin : margin + len(token.content)] != token.content:
            raise MarkupUnknownError
        self._at += margin
        self._show(len(token.content), style="code")
        self._at = closing.end()

    def _auto_link(self, waiting: Iterator[Token]) -> None:
        for token in waiting:
            if token.type == "link_close":
                break
        closing = self._text.find(">", self._at)
        self._skip("<")
        if closing < 0:
            raise MarkupUnknownError
        self._show(closing - self._at, style="link")
        self._skip(">")

    def _close_link(self) -> None:
        """`](place "title")` is drawn as ` (place "title")`, so that a terminal can follow it and all is seen."""
        if not self._text.startswith("](", self._at) or not self._styles or self._styles[-1] != "link":
            raise MarkupUnknownError
        end = self._link_end(self._at + 2)
        self._styles.pop()
        (opening,) = self._inline.pieces(self._at, self._at + 2, "url")
        self._lines[-1].append(opening._replace(text=" ("))
        self._at += 2
        self._show(end - self._at, style="url")

    def _link_end(self, at: int) -> int:
        """After the parenthesis that closes a link's place and title."""
        text, length = self._text, len(self._text)
        at = _after_blanks(text, at)
        place = helpers.parseLinkDestination(text, at, length)
        if place.ok:
            at = place.pos
        before_title = at
        at = _after_blanks(text, at)
        title = helpers.parseLinkTitle(text, at, length)
        if at != before_title and title.ok:
            at = _after_blanks(text, title.pos)
        if not text.startswith(")", at):
            raise MarkupUnknownError
        return at + 1


def _after_blanks(text: str, at: int) -> int:
    found = _BLANKS.match(text, at)
    return found.end() if found else at
