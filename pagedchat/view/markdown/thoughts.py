"""Where a model thinks before it answers, and the one row that stands for it. Knows the tags, no Markdown.

A thought begins with a tag at the start of a line. Some models are made to begin with a thought, so that only the
closing tag, alone on its line, says that all before it was one.
"""

import re
from typing import NamedTuple

from pagedchat.view.markdown.pieces import Piece
from pagedchat.view.sentences.words import count

_NAMES = "think|thinking|thought|reasoning"
_TAG = re.compile(rf"^[ ]{{0,3}}(?:<(?P<opens>{_NAMES})>|</(?P<closes>{_NAMES})>[ \t]*(?=[\r\n]|\Z))", re.MULTILINE)
_WORD = r"[\u2e80-\u9fff\uac00-\ud7af\uf900-\ufaff]|[^\s\u2e80-\u9fff\uac00-\ud7af\uf900-\ufaff]+"
"""Takes 3 ms to compile, which chats without thoughts do without."""
_OPENING_TAGS = tuple(f"<{name}>" for name in _NAMES.split("|"))
FOLDED, OPENED = "►", "▼"


class Tag(NamedTuple):
    """One that was found at the start of a line."""

    start: int
    end: int
    name: str
    opens: bool


def find_tag(text: str, start: int, end: int) -> Tag | None:
    """The first one in `text[start:end]`; `start` is the beginning of a line."""
    if text.find("<", start, end) < 0:
        return None
    found = _TAG.search(text, start, end)
    if found is None:
        return None
    return Tag(found.start(), found.end(), found["opens"] or found["closes"], found["opens"] is not None)


def may_be_tag(line: str) -> bool:
    """Whether a line that is being written may become an opening tag."""
    start = line.lstrip(" ")
    return start.startswith("<") and any(tag.startswith(start) for tag in _OPENING_TAGS)


def num_words(text: str) -> int:
    """Words; an ideograph is one."""
    return sum(1 for _ in re.finditer(_WORD, text))


def thought_line(words: int, start: int, end: int, *, finished: bool, opened: bool) -> Piece:
    """The row that stands for the source characters `start` to `end`."""
    what = "thought" if finished else "thinking"
    length = f" · {count(words, 'word')}" if finished or not opened else ""
    text = f"{OPENED if opened else FOLDED} {what}{length}"
    return Piece(text, "thought", start, end) if start < end else Piece(text, "thought")
