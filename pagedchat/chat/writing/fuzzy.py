"""Names found by some of their letters in order, the best first. Knows nothing of what is named."""

from collections.abc import Sequence

_BETWEEN_WORDS = frozenset("/\\ ._-")
MOST_TYPED = 64


def ranked(typed: str, names: Sequence[str], most: int) -> list[int]:
    """Indices of the names that have the letters of `typed` in order; as they come where nothing is typed.

    Better are those where the letters stand together, begin a word, and, of equals, the shorter name.
    """
    letters = typed.lower()[:MOST_TYPED]
    if not letters:
        return list(range(min(most, len(names))))
    scored = [(score, index) for index, name in enumerate(names) if (score := _score(letters, name)) is not None]
    return [index for _, index in sorted(scored)[:most]]


def _score(letters: str, name: str) -> tuple[int, int, int] | None:
    lower = name.lower()
    span = _span(letters, lower, lower.rfind("/") + 1) or _span(letters, lower, 0)
    if span is None:
        return None
    start, end = span
    begins_word = start == 0 or lower[start - 1] in _BETWEEN_WORDS
    return end - start, 0 if begins_word else 1, len(name)


def _span(letters: str, lower: str, start: int) -> tuple[int, int] | None:
    """Where the letters stand from `start` on, each as early as it can be, then drawn together from the end."""
    together = lower.find(letters, start)
    if together >= 0:
        return together, together + len(letters)
    end = start
    for letter in letters:
        end = lower.find(letter, end) + 1
        if end == 0:
            return None
    first = end
    for letter in reversed(letters):
        first = lower.rfind(letter, 0, first)
    return first, end
