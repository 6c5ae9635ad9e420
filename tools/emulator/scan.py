"""Finding one's way in C++ text by its brackets, strings left aside. Knows no more of the language."""

import re
from collections.abc import Iterator
from functools import cache

_OPENING, _CLOSING = "([{", ")]}"


def bare_marks(text: str, marks: str, start: int = 0, end: int | None = None) -> Iterator[int]:
    """Positions of any of the characters `marks` that are in no string of `text` from `start` on, before `end`."""
    for match in _strings_and(marks).finditer(text, start, len(text) if end is None else end):
        if len(match[0]) == 1:
            yield match.start()


@cache
def _strings_and(marks: str) -> re.Pattern[str]:
    return re.compile(rf'"(?:[^"\\]|\\.)*"|\'(?:[^\'\\]|\\.)*\'|[{re.escape(marks)}]')


def closing(text: str, opening: int) -> int:
    """Position of the bracket that closes the one at `opening`.

    Raises:
        ValueError: nothing closes it.
    """
    depth = 0
    for at in bare_marks(text, _OPENING + _CLOSING, opening):
        depth += 1 if text[at] in _OPENING else -1
        if depth == 0:
            return at
    raise ValueError(f"nothing closes {text[opening : opening + 40]!r}")


def split(text: str, mark: str) -> list[str]:
    """The parts of `text` between `mark`s that stand in no bracket, stripped; none of an empty text."""
    parts, depth, begin = [], 0, 0
    for at in bare_marks(text, _OPENING + _CLOSING + mark):
        depth += (text[at] in _OPENING) - (text[at] in _CLOSING)
        if text[at] == mark and depth == 0:
            parts.append(text[begin:at])
            begin = at + 1
    parts.append(text[begin:])
    return [part.strip() for part in parts] if text.strip() else []


def depth_at(text: str, position: int) -> int:
    """In how many braces `position` stands."""
    return sum(1 if text[at] == "{" else -1 for at in bare_marks(text, "{}", end=position))
