"""Scrolls over lines that grow at the end: it stays there until somebody scrolls up, and then says there is more.

Knows nothing of what the lines show.
"""

from rich.segment import Segment
from rich.style import Style
from textual import events
from textual.strip import Strip

from pagedchat.tui.kit.quiet import QuietScrollView

_BADGE, _ASCII_BADGE = " ↓ new text ", " v new text "


class FollowingView(QuietScrollView):
    """Follows its end while the user has not scrolled up. Subclasses draw, the badge too."""

    def __init__(self) -> None:
        super().__init__()
        self._follows = True
        self._unseen = False
        """Whether lines were added below what is in sight."""

    def follow(self, *, grown: bool) -> None:
        """The lines have changed; `grown` says whether there are more than before."""
        if self._follows:
            self.scroll_to_end()
        else:
            self._set_unseen(self._unseen or grown)

    def scroll_to_end(self) -> None:
        """Show the newest text and stay with it."""
        self._follows = True
        self._set_unseen(False)
        if self.scroll_y == self.max_scroll_y:
            return
        # Forced, because the scroll bar that would allow it appears only with the next layout.
        self.scroll_end(animate=False, force=True, immediate=True, x_axis=False)

    def scroll_page(self, direction: int) -> None:
        """One page up (-1) or down (1)."""
        self._follows = False
        self.scroll_relative(y=direction * max(1, self.size.height - 2), animate=False)

    def scroll_to_line(self, line: int) -> None:
        """Bring a line that is out of sight into the upper third, and stay there."""
        top = self.scroll_offset.y
        if not top <= line < top + self.size.height:
            self._follows = False
            self.scroll_to(y=max(0, line - self.size.height // 3), animate=False, force=True)

    def watch_scroll_y(self, old_value: float, new_value: float) -> None:
        """Whoever scrolls up reads; whoever scrolls to the end follows again."""
        super().watch_scroll_y(old_value, new_value)
        if old_value == new_value:
            return
        self._follows = new_value >= self.max_scroll_y
        if self._follows:
            self._set_unseen(False)

    def _set_unseen(self, unseen: bool) -> None:
        if unseen != self._unseen:
            self._unseen = unseen
            self.refresh()

    # --- the badge ----------------------------------------------------------------------------------

    def has_badge(self, y: int) -> bool:
        """Whether the badge stands on this row of the view."""
        return self._unseen and y == self.size.height - 1

    def with_badge(self, strip: Strip, style: Style, *, ascii_only: bool) -> Strip:
        """The row with the badge over its end."""
        start = self._badge_start
        tail = strip.crop(min(start + len(_BADGE), strip.cell_length), strip.cell_length)
        return Strip([*strip.crop(0, start), Segment(_ASCII_BADGE if ascii_only else _BADGE, style), *tail])

    @property
    def _badge_start(self) -> int:
        return max(0, self.size.width - len(_BADGE) - 1)

    def on_click(self, event: events.Click) -> None:
        """The badge is a button."""
        if self.has_badge(event.y) and event.x >= self._badge_start:
            self.scroll_to_end()
