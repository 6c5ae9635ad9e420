"""The footer: every key of the list that fits, in order; a click does the same as the key."""

from collections.abc import Sequence
from typing import NamedTuple

from textual import events
from textual.content import Content
from textual.widget import Widget

from pagedchat.tui.actions import KeyAction, remapped
from pagedchat.tui.kit.lines import MUTED

_GAP = 2
_MAX_ROWS = 2
_ROOM_FOR_TWO_ROWS = 30
"""Terminals with fewer rows than this get one row of keys."""


def keys_of(part: Widget | None) -> tuple[KeyAction, ...]:
    """The keys of a part of the screen that has some of its own, and says so in its `KEYS`."""
    keys = getattr(part, "KEYS", ())
    return keys if isinstance(keys, tuple) else ()


class _Placed(NamedTuple):
    row: int
    start: int
    end: int
    action: KeyAction


class KeyBar(Widget):
    """Keys and what they do, in one row or two. The last `num_always` are shown even where others are not."""

    DEFAULT_CSS = """
    KeyBar { height: 1; padding: 0 1; background: $surface; }
    """

    def __init__(self, actions: Sequence[KeyAction], num_always: int) -> None:
        super().__init__()
        self._actions = [action for action in actions if action.label]
        self._num_always = num_always
        self._placed: list[_Placed] = []

    def show(self, actions: Sequence[KeyAction]) -> None:
        """Show these keys from now on; the rows stay as many as they are."""
        keys = getattr(self.app, "keys", {})
        shown = [remapped(action, keys) for action in actions if action.label]
        if shown != self._actions:
            self._actions = shown
            self.refresh()

    def on_mount(self) -> None:
        """Keys as the user has them."""
        keys = getattr(self.app, "keys", {})
        self._actions = [remapped(action, keys) for action in self._actions]

    def on_resize(self, event: events.Resize) -> None:
        """A second row where the first has no room for all, and the terminal has room for it."""
        allowed = _MAX_ROWS if self.app.size.height >= _ROOM_FOR_TWO_ROWS else 1
        width = event.size.width - self.gutter.width
        self.styles.height = next((rows for rows in range(1, allowed) if self._all_fit(width, rows)), allowed)

    def render(self) -> Content:
        """The keys that fit."""
        self._placed = self._place(*self.content_size)
        lines: list[list[Content]] = [[] for _ in range(_MAX_ROWS)]
        for placed in self._placed:
            lines[placed.row].append(_entry(placed.action))
        return Content("\n").join([Content(" " * _GAP).join(line) for line in lines if line])

    def _all_fit(self, width: int, rows: int) -> bool:
        return len(self._place(width, rows)) == len(self._actions)

    def _place(self, width: int, rows: int) -> list[_Placed]:
        """Where each key stands. In the last row, room is kept for those that are always shown."""
        always = self._actions[-self._num_always :]
        reserved = sum(_width(action) + _GAP for action in always)
        placed: list[_Placed] = []
        row, start = 0, 0
        for action in self._actions:
            needed = _width(action)
            if row < rows - 1 and start + needed > width:
                row, start = row + 1, 0
            if row == rows - 1 and action not in always and start + needed + _GAP + reserved > width:
                continue
            placed.append(_Placed(row, start, start + needed, action))
            start += needed + _GAP
        return placed

    def on_click(self, event: events.Click) -> None:
        """Do what the key does."""
        offset = event.get_content_offset(self)
        for placed in self._placed:
            if offset is not None and offset.y == placed.row and placed.start <= offset.x < placed.end:
                self.app.simulate_key(placed.action.first_key)


def _entry(action: KeyAction) -> Content:
    return Content.assemble((action.key_display, "bold $text-primary"), (f" {action.label}", MUTED))


def _width(action: KeyAction) -> int:
    return _entry(action).cell_length
