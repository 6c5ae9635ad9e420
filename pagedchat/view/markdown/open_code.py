"""A block of code that is being written: a line is drawn once, when it is whole. Knows only fences of Markdown."""

import re

from markdown_it.token import Token

from pagedchat.chat.visible import visible
from pagedchat.view.markdown.blocks import code_rows, label_rows
from pagedchat.view.markdown.plain import TextRow


class OpenCode:
    """A fence without an end.

    Args:
        token: what the parser says of it.
        line: its first line, as it is drawn.
        start: where that begins in the source.
    """

    def __init__(self, token: Token, line: str, start: int) -> None:
        self.start = start
        self._info = token.info.strip()
        self._indent = len(line) - len(line.lstrip(" "))
        self._info_place = line.find(self._info, self._indent + len(token.markup))
        self._language = self._info.partition(" ")[0]
        self._state: tuple[str, ...] = ("root",)
        mark = token.markup
        self._closing = re.compile(rf" {{0,3}}{re.escape(mark[0])}{{{len(mark)},}}[ \t]*")
        self._partial = re.compile(rf" {{0,3}}{re.escape(mark[0])}*[ \t]*")
        self._first = line

    def label(self, width: int) -> list[TextRow]:
        """The row above the code."""
        return label_rows(self._info, self._info_place, visible(self._first), self.start, width)

    def closes(self, line: str) -> bool:
        """Whether this line of the source is the fence's end, as it is drawn: the parser sees no more of it."""
        return self._closing.fullmatch(visible(line).text) is not None

    def may_close(self, line: str) -> bool:
        """Whether a line that is being written may become its end."""
        return self._partial.fullmatch(visible(line).text) is not None

    def rows(self, source: str, start: int, width: int, *, whole: bool) -> list[TextRow]:
        """Rows of a line, which begins at `start`; `whole` says that nothing will be added to it."""
        drawn = visible(source)
        text = drawn.text.rstrip("\n")
        indent = min(self._indent, len(text) - len(text.lstrip(" ")))
        from pagedchat.view.markdown.code import colored_line  # noqa: PLC0415 - loads Pygments

        colored, state = colored_line(self._language, text[indent:], self._state)
        if whole:
            self._state = state
        return code_rows(colored, indent, drawn, start, width)
