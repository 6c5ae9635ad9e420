"""Markdown as rows of pieces for a width: paragraphs, headings, lists, quotes, code, tables, lines.

Rows follow the lines of the source: a line end ends a row, and where lines were left blank one row is. What a row
shows is as it was written, without the marks that only say how; numbers of lists and the places of links are shown.
HTML, entities and definitions of links are text. Whatever could not be shown so is shown as it was written: no
letter and no digit of a model is ever left out.
"""

import re
from collections.abc import Sequence
from functools import cache
from typing import TYPE_CHECKING, NamedTuple

from markdown_it import MarkdownIt
from markdown_it.token import Token

from pagedchat.chat.visible import VisibleText
from pagedchat.view.chats.wrap import chopped
from pagedchat.view.markdown.inline import InlineText, inline_lines
from pagedchat.view.markdown.pieces import FRAME, INDENT, LABEL, PAD, Piece, Pieces, cut, in_source, text_of
from pagedchat.view.markdown.plain import TextRow, wrapped
from pagedchat.view.markdown.tables import Cell, Table, table_rows

if TYPE_CHECKING:
    from pagedchat.view.markdown.code import Colored

CODE = "codeblock"
"""The style that rows of code are filled with."""
_LEAST_TEXT = 8
"""Cells that quotes and lists within one another leave for their text, where the pane has as many."""
_MARKER = re.compile(r"[ >]*?([-+*]|\d{1,9}[.)])(?=\s|$)")
_HASHES = re.compile(r"#+")


@cache
def parser() -> MarkdownIt:
    """What is Markdown here: tables and struck text too, but nothing that stands for other text than its own."""
    made = MarkdownIt("commonmark", {"maxNesting": 50})
    made.enable(["table", "strikethrough"])
    made.disable(["reference", "html_block", "html_inline", "entity", "text_join"])
    return made


def markdown_rows(
    drawn: VisibleText, base: int, width: int, *, finished: bool, blocks: Sequence["TopBlock"] | None = None
) -> list[TextRow]:
    """Rows at most `width` cells wide.

    Args:
        drawn: whole blocks of Markdown.
        base: where they begin in their source.
        width: cells.
        finished: whether nothing will be added to them.
        blocks: those that they are, if that was asked already.
    """
    walk = _Walk(drawn, base, width, finished)
    blocks = top_blocks(drawn) if blocks is None else blocks
    ends = [block.first for block in blocks[1:]] + [drawn.text.count("\n") + 1]
    for block, end in zip(blocks, ends if blocks else (), strict=True):
        walk.take_block(block, end)
    return walk.rows


class TopBlock(NamedTuple):
    """A block that is in no other."""

    tokens: Sequence[Token]
    first: int
    """Its first line."""

    def is_open_code(self, num_lines: int) -> bool:
        """Whether it is a fence that is not closed before the text's `num_lines` are over."""
        token = self.tokens[0]
        if token.type != "fence":
            return False
        first, last = _line_range(token)
        return last + 1 >= num_lines and last - first + 1 < token.content.count("\n") + 2


def top_blocks(drawn: VisibleText) -> list[TopBlock]:
    """What the parser says of a text, block by block."""
    tokens = parser().parse(drawn.text)
    blocks: list[TopBlock] = []
    start = 0
    for index, token in enumerate(tokens):
        if token.level == 0 and token.nesting <= 0:
            blocks.append(TopBlock(tokens[start : index + 1], _line_range(tokens[start])[0]))
            start = index + 1
    return blocks


def code_rows(colored: "Colored", place: int, drawn: VisibleText, base: int, width: int) -> list[TextRow]:
    """Rows of one line of code, which begins at `place`."""
    pieces: list[Piece] = []
    for text, style in colored:
        pieces.append(Piece(text, style, place, place + len(text)))
        place += len(text)
    if not pieces:
        return [TextRow((Piece(" ", PAD),), fill=CODE)]
    line = in_source(tuple(pieces), drawn, base)
    room = max(2, width - 2)
    rows: list[TextRow] = []
    at = 0
    for part in chopped(text_of(line), room):
        margin = (Piece(" ", PAD),) if width > 2 else ()
        rows.append(TextRow((*margin, *cut(line, at, at + len(part))), "" if at else "\n", CODE))
        at += len(part)
    return rows


def label_rows(info: str, place: int, drawn: VisibleText, base: int, width: int) -> list[TextRow]:
    """The row above code: its language as it was written at `place`, or the word that says what it is."""
    pieces: Pieces = (Piece("code", FRAME),)
    if info:
        pieces = in_source((Piece(info, LABEL, place, place + len(info)),), drawn, base)
    rows = wrapped(pieces, max(2, width - 2))
    return [
        row._replace(pieces=(Piece(" ", PAD), *row.pieces) if width > 2 else row.pieces, fill=CODE) for row in rows
    ]


class _Container:
    """A quote or an item of a list: what stands before each of its rows."""

    def __init__(self, first: Pieces, rest: Piece) -> None:
        self._first: Pieces | None = first
        self._rest = rest

    @property
    def started(self) -> bool:
        return self._first is None

    def take(self) -> Pieces:
        """Before the next row."""
        first, self._first = self._first, None
        return first if first is not None else (self._rest,)

    @property
    def rest(self) -> Piece:
        return self._rest


class _Walk:
    """Goes through a parser's tokens and makes rows."""

    def __init__(self, drawn: VisibleText, base: int, width: int, finished: bool) -> None:
        self._drawn, self._base, self._width, self._finished = drawn, base, width, finished
        self._lines = drawn.text.split("\n")
        self._starts = [0]
        for line in self._lines[:-1]:
            self._starts.append(self._starts[-1] + len(line) + 1)
        self._containers: list[_Container] = []
        self._last_line = -1
        """The last line of the source that was taken."""
        self._columns: dict[int, int] = {}
        """Line -> where behind the markers that were found in it."""
        self.rows: list[TextRow] = []
        self._shown: list[tuple[int, int]] = []
        """Drawn characters that rows of this block show or account for."""

    def take_block(self, block: TopBlock, after: int) -> None:
        """Rows of a block, which ends before the line `after`; as it was written if markup would hide any of it, or
        if it has none: an empty quotation."""
        num_rows, self._shown = len(self.rows), []
        last_line, self._containers = self._last_line, []
        self._take(block.tokens)
        is_drawn = len(self.rows) > num_rows
        if is_drawn and self._all_shown(self._starts[block.first], self._line_end(after - 1)):
            return
        del self.rows[num_rows:]
        self._last_line = last_line
        self._gap(block.first)
        last = max(line for line in range(block.first, after) if self._lines[line].strip() or line == block.first)
        for line in range(block.first, last + 1):
            at = self._starts[line]
            piece = Piece(self._lines[line], "", at, at + len(self._lines[line]))
            self.rows += wrapped(in_source((piece,), self._drawn, self._base), self._width)
        self._last_line = last

    def _line_end(self, line: int) -> int:
        return self._starts[line] + len(self._lines[line])

    def _all_shown(self, start: int, end: int) -> bool:
        """Whether what is not shown of these characters is only markup."""
        text = self._drawn.text
        for low, high in sorted(self._shown):
            if any(map(str.isalnum, text[start:low])):
                return False
            start = max(start, high)
        return not any(map(str.isalnum, text[start:end]))

    def _take(self, tokens: Sequence[Token]) -> None:
        index = 0
        while index < len(tokens):
            token = tokens[index]
            match token.type:
                case "paragraph_open":
                    self._text(token, tokens[index + 1], "")
                case "heading_open":
                    self._heading(token, tokens[index + 1])
                case "fence" | "code_block":
                    self._code(token)
                case "hr":
                    self._line(token)
                case "blockquote_open":
                    self._containers.append(_Container((Piece("│ ", FRAME),), Piece("│ ", FRAME)))
                case "list_item_open":
                    self._item(token)
                case "list_item_close":
                    if not self._containers[-1].started:
                        self._emit_first(token, self._item_line)
                    self._containers.pop()
                case "blockquote_close":
                    self._containers.pop()
                case "table_open":
                    index = self._table(tokens, index)
            index += 1

    # --- leaves -------------------------------------------------------------------------------------

    def _text(self, block: Token, inline: Token, style: str) -> None:
        first, last = _line_range(block)
        text = self._suffixes(inline.content, first)
        if text is None:
            return
        self._emit_lines([_styled(line, style) for line in inline_lines(text, inline.children or [])], first, last)

    def _heading(self, block: Token, inline: Token) -> None:
        style = "heading1" if block.tag == "h1" else "heading"
        if block.markup in ("=", "-"):
            self._text(block, inline, style)
            return
        first, last = _line_range(block)
        line = self._lines[first]
        hashes = _HASHES.search(line, self._columns.get(first, 0))
        at = line.find(inline.content, hashes.end()) if hashes else -1
        if at < 0:
            return
        text = InlineText(inline.content, [(0, self._starts[first] + at)])
        self._emit_lines([_styled(line, style) for line in inline_lines(text, inline.children or [])], first, last)

    def _code(self, token: Token) -> None:
        from pagedchat.view.markdown.code import colored_code  # noqa: PLC0415 - loads Pygments

        first, last = _line_range(token)
        lines = token.content.removesuffix("\n").split("\n") if token.content else []
        closed = self._finished or last - first > len(lines)
        self._gap(first)
        language = ""
        if token.type == "fence":
            language = self._label(token, first)
            first += 1
        for number, (line, colored) in enumerate(
            zip(lines, colored_code(language, lines, finished=closed), strict=True), first
        ):
            start = self._line_end(number) - len(line)
            self._shown.append((start, start + len(line)))
            self._emit(code_rows(colored, start, self._drawn, self._base, self._room))
        self._last_line = last

    def _label(self, token: Token, line: int) -> str:
        """The row above a fence; returns the language that it names."""
        info = token.info.strip()
        opening = self._lines[line].find(token.markup, self._columns.get(line, 0))
        place = self._starts[line] + max(0, self._lines[line].find(info, opening + len(token.markup)))
        if info:
            self._shown.append((place, place + len(info)))
        self._emit(label_rows(info, place, self._drawn, self._base, self._room))
        return info.partition(" ")[0]

    def _line(self, token: Token) -> None:
        first, last = _line_range(token)
        start, end = self._starts[first], self._starts[first] + len(self._lines[first])
        self._gap(first)
        line = in_source((Piece("─" * self._room, FRAME, start, end),), self._drawn, self._base)
        self._emit([TextRow(line)])
        self._last_line = last

    def _table(self, tokens: Sequence[Token], index: int) -> int:
        first, last = _line_range(tokens[index])
        table = Table([], [])
        row: list[Cell] = []
        columns: list[int] = []
        while tokens[index].type != "table_close":
            token = tokens[index]
            if token.type == "tr_open":
                row, line = [], _line_range(token)[0]
                columns = [self._columns.get(line, 0)]
            elif token.type in ("th_open", "td_open"):
                cell = self._cell(tokens[index + 1], line, columns)
                row.append(cell)
                if token.type == "th_open":
                    table.sides.append(str(token.attrs.get("style", "")).rpartition(":")[2])
            elif token.type == "tr_close":
                table.rows.append(row)
            index += 1
        self._gap(first)
        rule = Piece("", FRAME, self._starts[first + 1], self._starts[first + 1] + len(self._lines[first + 1]))
        self._shown.append((rule.start, rule.end))
        (rule,) = in_source((rule,), self._drawn, self._base)[:1] or (rule,)
        self._emit([TextRow(pieces) for pieces in table_rows(table, rule, self._room)])
        self._last_line = last
        return index

    def _cell(self, inline: Token, line: int, columns: list[int]) -> Cell:
        """Where a cell's text stands in its line; `columns` ends with where to look for it."""
        raw = inline.content.replace("|", "\\|")
        at = self._lines[line].find(raw, columns[-1]) if raw else -1
        if at < 0:
            return Cell(())
        columns.append(at + len(raw))
        parts = [(0, self._starts[line] + at)]
        for number, bar in enumerate((bar.start() for bar in re.finditer(r"\|", inline.content)), 1):
            parts.append((bar, self._starts[line] + at + bar + number))
        found = inline_lines(InlineText(inline.content, parts), inline.children or [])
        pieces = tuple(piece for pieces in found for piece in pieces)
        self._account([pieces])
        return Cell(in_source(pieces, self._drawn, self._base))

    # --- containers ---------------------------------------------------------------------------------

    def _item(self, token: Token) -> None:
        line, _ = _line_range(token)
        self._item_line = line
        found = _MARKER.match(self._lines[line], self._columns.get(line, 0))
        if found is None:
            self._containers.append(_Container((), Piece("  ", INDENT)))
            return
        self._columns[line] = found.end()
        marker, start = found[1], self._starts[line] + found.start(1)
        text = "•" if marker in "-+*" else marker
        piece = Piece(text, "bullet", start, start + len(marker))
        self._containers.append(_Container((piece, Piece(" ", INDENT)), Piece(" " * (len(marker) + 1), INDENT)))

    def _emit_first(self, token: Token, line: int) -> None:
        """An item without anything in it."""
        self._gap(line)
        self.rows.append(TextRow(self._prefix()))
        self._last_line = max(self._last_line, line)

    def _prefix(self) -> Pieces:
        """What stands before the next row, with room left for its text."""
        pieces = tuple(piece for container in self._containers for piece in container.take())
        if not pieces:
            return ()
        kept = cut(pieces, 0, self._room_before)
        self._account([kept])
        return in_source(kept, self._drawn, self._base)

    @property
    def _room_before(self) -> int:
        return max(0, self._width - _LEAST_TEXT)

    @property
    def _room(self) -> int:
        before = sum(len(container.rest.text) for container in self._containers)
        return self._width - min(before, self._room_before)

    # --- rows ---------------------------------------------------------------------------------------

    def _gap(self, line: int) -> None:
        """A blank row where lines were left out before this one."""
        if 0 <= self._last_line < line - 1:
            self.rows.append(TextRow(cut(
                tuple(container.rest for container in self._containers if container.started),
                0, self._room_before,
            ) if self._containers else ()))  # fmt: skip

    def _emit_lines(self, lines: Sequence[Pieces], first: int, last: int) -> None:
        self._gap(first)
        self._account(lines)
        for line in lines:
            self._emit(wrapped(in_source(line, self._drawn, self._base), self._room))
        self._last_line = last

    def _emit(self, rows: Sequence[TextRow]) -> None:
        for row in rows:
            self.rows.append(row._replace(pieces=(*self._prefix(), *row.pieces)))

    def _account(self, lines: Sequence[Pieces]) -> None:
        self._shown += [(piece.start, piece.end) for line in lines for piece in line if piece.start >= 0]

    def _suffixes(self, content: str, first: int) -> InlineText | None:
        """A block's text; each of its lines is the end of a line of the source."""
        parts: list[tuple[int, int]] = []
        offset = 0
        for number, line in enumerate(content.split("\n"), first):
            source, wanted = self._lines[number].rstrip(), line.rstrip()
            if not source.endswith(wanted):
                return None
            parts.append((offset, self._starts[number] + len(source) - len(wanted)))
            offset += len(line) + 1
        return InlineText(content, parts)


def _styled(pieces: Pieces, style: str) -> Pieces:
    return tuple(piece._replace(style=f"{style} {piece.style}".strip()) for piece in pieces) if style else pieces


def _line_range(token: Token) -> tuple[int, int]:
    """First and last line."""
    first, after = token.map or (0, 1)
    return first, after - 1
