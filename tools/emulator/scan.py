"""Finding one's way in C++ text by its brackets, strings left aside. Knows no more of the language."""

import re
from collections.abc import Iterator

_STRING_OR_CHAR = re.compile(r'"(?:[^"\\]|\\.)*"|\'(?:[^\'\\]|\\.)*\'')
_OPENING, _CLOSING = "([{", ")]}"


def bare_positions(text: str, start: int = 0) -> Iterator[int]:
    """Positions of `text` from `start` on that are in no string."""
    at = start
    while at < len(text):
        string = _STRING_OR_CHAR.match(text, at) if text[at] in "\"'" else None
        if string:
            at = string.end()
        else:
            yield at
            at += 1


def closing(text: str, opening: int) -> int:
    """Position of the bracket that closes the one at `opening`.

    Raises:
        ValueError: nothing closes it.
    """
    depth = 0
    for at in bare_positions(text, opening):
        depth += (text[at] in _OPENING) - (text[at] in _CLOSING)
        if depth == 0:
            return at
    raise ValueError(f"nothing closes {text[opening : opening + 40]!r}")


def split(text: str, mark: str) -> list[str]:
    """The parts of `text` between `mark`s that stand in no bracket, stripped; none of an empty text."""
    parts, depth, begin = [], 0, 0
    for at in bare_positions(text):
        depth += (text[at] in _OPENING) - (text[at] in _CLOSING)
        if text[at] == mark and depth == 0:
            parts.append(text[begin:at])
            begin = at + 1
    parts.append(text[begin:])
    return [part.strip() for part in parts] if text.strip() else []


def depth_at(text: str, position: int) -> int:
    """In how many braces `position` stands."""
    before = text[:position]
    return sum((before[at] == "{") - (before[at] == "}") for at in bare_positions(before))
