"""A reply as rows while it is being written: what is finished is made once, only its open end again and again.

A block of Markdown is finished when another has begun on a whole line: nothing that comes later can change it.
However a text arrives, its rows are those of the whole text. Very long blocks are cut, so that ends stay cheap.
"""

import re

from pagedchat.chat.visible import visible
from pagedchat.view.markdown.blocks import markdown_rows, top_blocks
from pagedchat.view.markdown.open_code import OpenCode
from pagedchat.view.markdown.pieces import MAX_CODE, Piece
from pagedchat.view.markdown.plain import PlainDocument, TextRow, first_difference, written_rows
from pagedchat.view.markdown.thoughts import Tag, find_tag, may_be_tag, num_words, thought_line

MAX_LINES = 120
"""Of a block; a longer one is cut there."""
_LINE_END = re.compile("\r\n|[\n\r\u0085\u2028\u2029]")


class MarkdownDocument:
    """Markdown with thoughts.

    Args:
        width: cells.
        keep_open: whether thoughts are drawn whole.
        toggled: numbers of thoughts of which the opposite holds.
    """

    def __init__(self, width: int, *, keep_open: bool = False, toggled: frozenset[int] = frozenset()) -> None:
        self._width, self._keep_open, self._toggled = width, keep_open, toggled
        self._begin("")

    def _begin(self, leading_thought: str) -> None:
        """`leading_thought` is the name of a thought that began before the text did."""
        self.rows: list[TextRow] = []
        self._text = ""
        self._finished = False
        self._done = self._num_done = 0
        """Source characters and rows that are finished."""
        self._tried = 0
        """How far the text was looked through for finished blocks."""
        self._touched = 0
        """The first of the finished rows that was made anew after all."""
        self._gap = False
        """Whether a blank line comes before what comes next."""
        self._code: OpenCode | None = None
        self._thought: _Thought | None = None
        self._thought_rows: list[int] = []
        if leading_thought:
            self._open_thought(Tag(0, 0, leading_thought, opens=True))

    def update(self, text: str, *, finished: bool) -> int:
        """The text is this now; returns the first row that is another one than before."""
        if self._finished or not text.startswith(self._text):
            before, first = self.rows, 0
            self._begin("")
        else:
            first = self._num_done
            before = self.rows[first:]
            del self.rows[first:]
        self._text, self._finished, self._touched = text, finished, first
        while self._settle():
            pass
        self._draw_end()
        return self._touched if self._touched < first else first_difference(before, self.rows, first)

    def thought_at(self, row: int) -> int | None:
        """The number of the thought for which this row stands."""
        return self._thought_rows.index(row) if row in self._thought_rows else None

    def _settle(self) -> bool:
        """Finish some more; false if no more can be."""
        if self._thought is not None:
            return self._settle_thought(self._thought)
        if self._code is not None:
            return self._settle_code(self._code)
        return self._settle_blocks()

    def _draw_end(self) -> None:
        """What may still change."""
        if self._thought is not None:
            self._draw_thought(self._thought)
        elif self._code is not None:
            end = self._text[self._done :]
            if end and not self._code.may_close(end):
                self.rows += self._code.rows(end, self._done, self._width, whole=False)
        else:
            self._draw_blocks()
        if not self.rows:
            self.rows.append(TextRow(()))

    # --- blocks -------------------------------------------------------------------------------------

    def _settle_blocks(self) -> bool:
        end, num_lines = self._whole_lines()
        tag = self._next_tag(end if num_lines == MAX_LINES else len(self._text))
        end = tag.start if tag else end
        if end > self._done and (tag or end > self._tried):
            return self._settle_lines(end, tag, cut=tag is not None or num_lines == MAX_LINES)
        return tag is not None and self._take_tag(tag)

    def _take_tag(self, tag: Tag) -> bool:
        """A thought begins here, or all so far was one."""
        if tag.opens:
            self._open_thought(tag)
            return True
        text, finished = self._text, self._finished
        self._begin(tag.name)
        self._text, self._finished = text, finished
        return True

    def _settle_lines(self, end: int, tag: Tag | None, *, cut: bool) -> bool:
        """Finish all blocks but the last of some whole lines before `tag`; with `cut` the last, too."""
        drawn = visible(self._text[self._done : end])
        blocks = top_blocks(drawn)
        lines = drawn.text.split("\n")
        if blocks and blocks[-1].is_open_code(len(lines) - 1):
            last = blocks.pop()
            code_start = self._done + drawn.source(sum(len(line) + 1 for line in lines[: last.first]))
            if code_start > self._done:
                self._append(self._text[self._done : code_start], code_start)
            self._open_code(OpenCode(last.tokens[0], lines[last.first], code_start))
            return True
        if tag is not None and not tag.opens:
            return self._take_tag(tag)
        if len(blocks) > 1 and not cut:
            last = blocks.pop()
            end = self._done + drawn.source(sum(len(line) + 1 for line in lines[: last.first]))
        elif not cut:
            self._tried = end
            return False
        self._append(self._text[self._done : end], end)
        return True

    def _append(self, text: str, done: int) -> None:
        """Finished rows of some whole lines."""
        self.rows += self._block_rows(text, finished=True)
        blank = not text.strip()
        last_word = text.rstrip(" \t\r\n\u0085\u2028\u2029")  # lines of blanks are blank lines
        self._gap = (self._gap and blank) or len(_LINE_END.findall(text, len(last_word))) > 1 or blank
        self._done, self._num_done, self._tried = done, len(self.rows), 0

    def _block_rows(self, text: str, *, finished: bool) -> list[TextRow]:
        drawn = visible(text)
        blocks = top_blocks(drawn)
        rows = markdown_rows(drawn, self._done, self._width, finished=finished, blocks=blocks)
        if rows and self.rows and (self._gap or blocks[0].first):
            rows.insert(0, TextRow(()))
        return rows

    def _draw_blocks(self) -> None:
        text = self._text[self._done :]
        if not self._finished:
            start = text.rfind("\n") + 1
            if may_be_tag(text[start:]):
                text = text[:start]
        self.rows += self._block_rows(text, finished=self._finished)

    def _whole_lines(self) -> tuple[int, int]:
        """Where the next lines end to which nothing will be added, and how many they are."""
        end, num_lines = self._done, 0
        for found in _LINE_END.finditer(self._text, self._done):
            if num_lines == MAX_LINES or (found[0] == "\r" and found.end() == len(self._text)):
                break
            end, num_lines = found.end(), num_lines + 1
        return end, num_lines

    # --- code ---------------------------------------------------------------------------------------

    def _open_code(self, code: OpenCode) -> None:
        if self.rows and self._gap:
            self.rows.append(TextRow(()))
        self._code, self._code_row, self._code_length = code, len(self.rows), 0
        self.rows += code.label(self._width)
        first_line = _LINE_END.search(self._text, code.start)
        self._done, self._num_done = first_line.end() if first_line else len(self._text), len(self.rows)
        self._gap = False

    def _settle_code(self, code: OpenCode) -> bool:
        for found in _LINE_END.finditer(self._text, self._done):
            if found[0] == "\r" and found.end() == len(self._text) and not self._finished:
                break
            line = self._text[self._done : found.start()]
            if code.closes(line):
                self._close_code(code, found.end())
                return True
            self._add_code_line(code, line, found.end())
        if not self._finished:
            return False
        self._close_code(code, len(self._text))
        return True

    def _add_code_line(self, code: OpenCode, line: str, end: int) -> None:
        self.rows += code.rows(line, self._done, self._width, whole=True)
        self._code_length += len(line) + 1
        self._done, self._num_done = end, len(self.rows)

    def _close_code(self, code: OpenCode, end: int) -> None:
        """Colour all of it again, now that its end is known; what is very long keeps the colours of its lines."""
        if self._code_length <= 2 * MAX_CODE:
            self._touched = min(self._touched, self._code_row)
            del self.rows[self._code_row :]
            drawn = visible(self._text[code.start : end])
            self.rows += markdown_rows(drawn, code.start, self._width, finished=True)
        self._code = None
        self._done, self._num_done, self._tried = end, len(self.rows), 0

    # --- thoughts -----------------------------------------------------------------------------------

    def _next_tag(self, end: int) -> Tag | None:
        """The next tag that means something; a closing one does only where no thought was before."""
        start = self._done
        while (tag := find_tag(self._text, start, end)) is not None:
            unfinished = tag.end == len(self._text) and not self._finished
            if tag.opens or not (self._thought_rows or unfinished):
                return tag
            start = tag.end
        return None

    def _open_thought(self, tag: Tag) -> None:
        if self.rows:
            self.rows.append(TextRow(()))
        number = len(self._thought_rows)
        self._thought = _Thought(tag, len(self.rows), opened=self._keep_open != (number in self._toggled))
        self._thought_rows.append(len(self.rows))
        self._num_done = len(self.rows)

    def _settle_thought(self, thought: "_Thought") -> bool:
        closing = f"</{thought.tag.name}>"
        end = self._text.find(closing, max(thought.tag.end, thought.searched))
        if end < 0 and not self._finished:
            thought.searched = len(self._text) - len(closing) + 1
            return False
        after = len(self._text) if end < 0 else end + len(closing)
        self._touched = min(self._touched, thought.row)
        del self.rows[thought.row :]
        self.rows += thought.rows(self._text, end if end >= 0 else after, after, self._width)
        self._thought, self._gap = None, True
        self._done, self._num_done, self._tried = after, len(self.rows), 0
        return True

    def _draw_thought(self, thought: "_Thought") -> None:
        self.rows += thought.open_rows(self._text, self._width, len(self.rows) - thought.row)
        self._num_done = thought.row + thought.num_done


class _Thought:
    """One that has begun: the row that stands for it, and where it is opened what is thought."""

    def __init__(self, tag: Tag, row: int, *, opened: bool) -> None:
        self.tag, self.row, self.opened = tag, row, opened
        self.searched = 0
        """How far its end was looked for."""
        self.num_done = 0
        """Rows that will stay as they are."""
        self._words = self._counted = 0
        self._body: PlainDocument | None = None
        self._body_start = 0

    def rows(self, text: str, end: int, after: int, width: int) -> list[TextRow]:
        """The rows of a thought that ends there."""
        words = num_words(text[self.tag.end : end])
        if not self.opened:
            return _line_rows(thought_line(words, self.tag.start, after, finished=True, opened=False), width)
        head = thought_line(words, self.tag.start, self.tag.end, finished=True, opened=True)
        rows = _line_rows(head, width)
        body = text[self.tag.end : end]
        start = len(body) - len(body.lstrip("\r\n"))
        if body.strip():
            rows += _body_rows(body[start:], self.tag.end + start, width)
        closing = Piece("", "thought", end, after)
        return [*rows[:-1], rows[-1]._replace(pieces=(*rows[-1].pieces, closing))]

    def open_rows(self, text: str, width: int, num_drawn: int) -> list[TextRow]:
        """Those behind the first `num_drawn`, which are finished."""
        if not self.opened:
            line = thought_line(self._num_words(text), self.tag.start, len(text), finished=False, opened=False)
            return _line_rows(line, width)
        head = _line_rows(thought_line(0, self.tag.start, self.tag.end, finished=False, opened=True), width)
        body = text[self.tag.end :]
        if self._body is None and body.strip("\r\n"):
            self._body_start = self.tag.end + len(body) - len(body.lstrip("\r\n"))
            self._body = PlainDocument(width, self._body_start, "thought")
        if self._body is None:
            return head
        self._body.update(text[self._body_start :], finished=False)
        self.num_done = len(head) + self._body.num_done
        return self._body.rows[num_drawn - len(head) :] if num_drawn else [*head, *self._body.rows]

    def _num_words(self, text: str) -> int:
        """Counted by whole lines once."""
        whole = text.rfind("\n", self.tag.end) + 1
        if whole > max(self._counted, self.tag.end):
            self._words += num_words(text[max(self._counted, self.tag.end) : whole])
            self._counted = whole
        return self._words + num_words(text[max(self._counted, self.tag.end) :])


def _line_rows(line: Piece, width: int) -> list[TextRow]:
    """One row, cut where it is too long."""
    return [TextRow((line._replace(text=line.text[:width]),))]


def _body_rows(text: str, base: int, width: int) -> list[TextRow]:
    return written_rows(visible(text.rstrip("\r\n")), base, width, "thought")
