"""Which row of a screen shows which part of which line, where a long line takes several rows. Pure arithmetic.

Lines are added at the end and dropped at the front, and neither costs more for there being many others.
"""

from bisect import bisect_left
from collections.abc import Iterable


class LineRows:
    """Lines from top to bottom, each of at least one row."""

    def __init__(self, heights: Iterable[int] = ()) -> None:
        self._lines: list[int] = []
        """Row -> its line, counted from the first one that there ever was."""
        self._dropped = 0
        self._end = 0
        self.add(heights)

    def __len__(self) -> int:
        return len(self._lines)

    def add(self, heights: Iterable[int]) -> int:
        """Lines of so many rows at the end; returns how many rows that are."""
        before = len(self._lines)
        for height in heights:
            self._lines += [self._end] * height
            self._end += 1
        return len(self._lines) - before

    def drop(self, count: int) -> int:
        """So many lines less at the front; returns how many rows that are."""
        self._dropped += count
        rows = bisect_left(self._lines, self._dropped)
        del self._lines[:rows]
        return rows

    def at(self, row: int) -> tuple[int, int]:
        """The line that a row shows, and which part of it."""
        line = self._lines[row]
        return line - self._dropped, row - bisect_left(self._lines, line)

    def rows_of(self, line: int) -> range:
        """The rows of a line."""
        number = line + self._dropped
        return range(bisect_left(self._lines, number), bisect_left(self._lines, number + 1))
