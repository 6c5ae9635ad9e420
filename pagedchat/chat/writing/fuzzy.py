"""Names found by some of their letters in order, the best first. Knows nothing of what is named."""

import re
from collections.abc import Sequence

_BOUNDARY = re.compile(r"(?:^|[/\\ ._-])$")
MOST_TYPED = 64


def ranked(typed: str, names: Sequence[str], most: int) -> list[int]:
    """Indices of the names that have the letters of `typed` in order; as they come where nothing is typed.

    Better are those where the letters stand together, begin a word, and, of equals, the shorter name.
    """
    letters = typed.lower()[:MOST_TYPED]
    if not letters:
        return list(range(min(most, len(names))))
    pattern = re.compile(".*?".join(map(re.escape, letters)), re.DOTALL)
    scored = [(score, index) for index, name in enumerate(names) if (score := _score(pattern, name)) is not None]
    return [index for _, index in sorted(scored)[:most]]


def _score(pattern: re.Pattern[str], name: str) -> tuple[int, int, int] | None:
    lower = name.lower()
    last = lower.rfind("/") + 1
    found = pattern.search(lower, last) or pattern.search(lower)
    if found is None:
        return None
    start, end = found.span()
    return end - start, 0 if _BOUNDARY.search(lower, max(0, start - 1), start) else 1, len(name)
