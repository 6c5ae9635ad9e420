"""A model's text as a transcript draws it: nothing in it commands the terminal, nothing in it is out of sight.

What a terminal could obey (escapes, controls) or hide behind (direction marks, invisible tags) is spelled out, as
`\\x1b` or `\\u202e`. What only changes the width of other characters is not drawn, as in `sanitize`. Every drawn
character knows which of the source it stands for. Knows no Markdown and no screen.
"""

import re
from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple

from pagedchat.chat.sanitize import MAX_MARKS, TAB_SIZE, drawn_char, is_mark, is_unsafe, num_cells, spelled_out

_PLAIN = re.compile("[\n\x20-\x7e]*")
_LINE_ENDS = "\r\u0085\u2028\u2029"


class Change(NamedTuple):
    """A run of source characters that are drawn as others."""

    start: int
    end: int
    drawn_start: int
    drawn_end: int
    spelled: bool
    """Whether it is spelled out, for a style of its own."""


class VisibleText(NamedTuple):
    """Drawn text, and what differs in it from the source, in order."""

    text: str
    changes: tuple[Change, ...] = ()

    def source(self, at: int) -> int:
        """The source character that the drawn one at `at` begins to stand for."""
        index = bisect_right(self.changes, at, key=lambda change: change.drawn_start) - 1
        if index < 0:
            return at
        change = self.changes[index]
        return change.start if at < change.drawn_end else change.end + at - change.drawn_end

    def source_end(self, at: int) -> int:
        """The source character after the last that is drawn before `at`."""
        index = bisect_left(self.changes, at, key=lambda change: change.drawn_start) - 1
        if index < 0:
            return at
        change = self.changes[index]
        return change.end + max(0, at - change.drawn_end)

    def changed_in(self, start: int, end: int) -> Sequence[Change]:
        """What is drawn otherwise of the drawn characters `start` to `end`."""
        first = bisect_left(self.changes, start, key=lambda change: change.drawn_end)
        last = bisect_left(self.changes, end, key=lambda change: change.drawn_start)
        return self.changes[first:last]


def visible(text: str) -> VisibleText:
    """`text` as it is drawn; line ends of all kinds are `\\n`, tabs are spaces up to the next tab stop.

    What a line looks like does not depend on other lines, so a text may be drawn in parts that end with lines.
    """
    if _PLAIN.fullmatch(text):
        return VisibleText(text)
    special = "".join(char for char in set(text) if char != "\n" and _is_special(char))
    return _changed(text, re.compile(f"\r\n|[{re.escape(special)}]")) if special else VisibleText(text)


def _changed(text: str, special: re.Pattern[str]) -> VisibleText:
    line = _Line()
    drawn: list[str] = []
    changes: list[Change] = []
    done, length = 0, 0
    for match in special.finditer(text):
        start, end = match.span()
        between = text[done:start]
        line.add(between)
        length += len(between)
        piece = line.tab() if match[0] == "\t" else line.fitting(_spelling(match[0]))
        line.add(piece)
        if piece != match[0]:
            changes.append(Change(start, end, length, length + len(piece), is_unsafe(match[0])))
        drawn += between, piece
        length += len(piece)
        done = end
    drawn.append(text[done:])
    return VisibleText("".join(drawn), tuple(changes))


class _Line:
    """What of the last line says how the next character is drawn: its width for tabs, its end for marks."""

    def __init__(self) -> None:
        self._column = 0
        self._end = ""

    def add(self, text: str) -> None:
        """So much more is drawn."""
        _, line_end, rest = text.rpartition("\n")
        if line_end:
            self._column, self._end = 0, ""
        self._column += num_cells(rest)
        self._end = (self._end + rest)[-MAX_MARKS:]

    def tab(self) -> str:
        return " " * (TAB_SIZE - self._column % TAB_SIZE)

    def fitting(self, piece: str) -> str:
        """`piece` without marks for which there is no letter, or too many marks on it already."""
        kept, before = "", self._end
        for char in piece:
            full = len(before) == MAX_MARKS and all(map(is_mark, before))
            if not is_mark(char) or (before and not before[-1].isspace() and not full):
                kept += char
                before = (before + char)[-MAX_MARKS:]
        return kept


@lru_cache(1 << 14)
def _is_special(char: str) -> bool:
    """Whether a character is drawn as others, or may be, where it stands."""
    return char == "\t" or is_mark(char) or _spelling(char) != char


def _spelling(char: str) -> str:
    if char == "\r\n" or char in _LINE_ENDS:
        return "\n"
    return spelled_out(char) if is_unsafe(char) else drawn_char(char)
