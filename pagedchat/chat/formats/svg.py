"""A chat as a picture: lines of text of a fixed width, in light or dark colours as the viewer likes them."""

from collections.abc import Iterator
from unicodedata import combining, east_asian_width
from xml.sax.saxutils import escape

from pagedchat.chat.formats.markdown import ENDINGS, SPEAKERS
from pagedchat.chat.formats.saved_chat import FormatError, SavedChat
from pagedchat.chat.formats.written_out import written_out
from pagedchat.chat.sanitize import drawable

COLUMNS = 96
MOST_LINES = 20_000
_CELL_WIDTH, _LINE_HEIGHT, _MARGIN = 8.43, 20, 24
_STYLE = """\
text { font: 14px "DejaVu Sans Mono", Menlo, Consolas, monospace; white-space: pre; fill: #1e1e1e; }
rect { fill: #ffffff; } .user { fill: #0550ae; } .head { fill: #6e7781; font-weight: bold; }
@media (prefers-color-scheme: dark) {
  text { fill: #e6e6e6; } rect { fill: #161616; } .user { fill: #79b8ff; } .head { fill: #8b949e; }
}"""


def to_svg(chat: SavedChat) -> str:
    """The whole chat below one another.

    Raises:
        FormatError: no program would show so long a picture.
    """
    lines = list(_lines(chat))
    if len(lines) > MOST_LINES:
        raise FormatError(f"The chat has {len(lines):,} lines; a picture may have {MOST_LINES:,}.",
                          "Add last N, or write FILE.html.")  # fmt: skip
    width = round(COLUMNS * _CELL_WIDTH + 2 * _MARGIN)
    height = len(lines) * _LINE_HEIGHT + 2 * _MARGIN
    drawn = [
        f'<text x="{_MARGIN}" y="{_MARGIN + 15 + row * _LINE_HEIGHT}" class="{kind}" '
        f'xml:space="preserve">{escape(line)}</text>'
        for row, (kind, line) in enumerate(lines)
        if line.strip()
    ]
    size = f'viewBox="0 0 {width} {height}" width="{width}" height="{height}"'
    return "\n".join([
        f'<svg xmlns="http://www.w3.org/2000/svg" {size}>',
        f"<style>\n{_STYLE}\n</style>",
        '<rect width="100%" height="100%"/>',
        *drawn,
        "</svg>",
        "",
    ])  # fmt: skip


def _lines(chat: SavedChat) -> Iterator[tuple[str, str]]:
    """Kind and text of every line."""
    texts = [("system", "", chat.system)] if chat.system else []
    texts += [(entry.turn.role, ENDINGS[entry.ending], entry.turn.text) for entry in chat.entries]
    yield from (("head", line) for line in _wrapped(chat.title or "Chat"))
    for role, ending, text in texts:
        yield "", ""
        yield "head", SPEAKERS[role] + (f" ({ending})" if ending else "")
        yield from ((role, line) for line in _wrapped(text.rstrip("\r\n")))


def _wrapped(text: str) -> Iterator[str]:
    """Lines of at most so many cells, cut at blanks where there are some."""
    for line in drawable(written_out(text)).split("\n"):
        yield from _cut(line)


def _cut(line: str) -> Iterator[str]:
    start, blank, cells = 0, -1, 0
    for index, char in enumerate(line):
        cells += _cells(char)
        if cells > COLUMNS:
            end = blank + 1 if blank >= start else index
            yield line[start:end].rstrip(" ")
            start, blank = end, -1
            cells = sum(map(_cells, line[start : index + 1]))
        if char == " ":
            blank = index
    yield line[start:]


def _cells(char: str) -> int:
    return 0 if combining(char) else 2 if east_asian_width(char) in "WF" else 1
