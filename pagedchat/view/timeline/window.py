"""Which of many columns are in sight, and which one the cursor is on. Numbers only; knows no screen.

Columns are numbered from the first one ever made, so a cursor stays on its column while new ones come and old ones
are forgotten. Without a cursor the window follows the newest column; with one it stands still.
"""


class ColumnWindow:
    """A window over columns `first` to `end - 1`."""

    def __init__(self) -> None:
        self.cursor: int | None = None
        """The chosen column; None follows the newest."""
        self.first = 0
        """The oldest column that there still is."""
        self.end = 0
        """One past the newest."""
        self.room = 0
        """Columns that fit."""
        self._right = 0
        """One past the last column in sight."""

    def fit(self, first: int, end: int, room: int) -> range:
        """There are these columns now, and so much room; the columns in sight."""
        self.first, self.end, self.room = first, end, room
        if self.cursor is not None:
            self.cursor = max(first, min(self.cursor, end - 1)) if end > first else None
        return self.in_sight

    @property
    def in_sight(self) -> range:
        """As many as fit, the cursor's among them, moved no more than is needed."""
        right = self.end
        if self.cursor is not None:
            right = max(self.cursor + 1, min(self._right or self.end, self.cursor + self.room))
            right = min(self.end, max(right, self.first + self.room))
        self._right = right
        return range(max(self.first, right - self.room), right)

    def move(self, columns: int) -> None:
        """Move the cursor; the first step back chooses the newest column, a step past it follows again."""
        if self.end <= self.first:
            return
        if self.cursor is None:
            if columns < 0:
                self.choose(self.end + columns)
        elif self.cursor + columns >= self.end:
            self.cursor = None
        else:
            self.choose(self.cursor + columns)

    def choose(self, column: int) -> None:
        """Put the cursor on a column, or on the nearest one that there is."""
        if self.end > self.first:
            self.cursor = max(self.first, min(column, self.end - 1))
