"""Paints a changed screen by asking only the topmost widgets over each change, and only for the rows concerned.

Textual draws a box around all changes and asks every widget in it, and all that lies behind it, for all rows. With
panes and panels that change in different corners the box is the screen, and most of the time goes into rows that
nobody has changed.
"""

import asyncio
import time
from collections.abc import Callable, Iterable, Iterator

from textual import events
from textual._compositor import ChopsUpdate, Compositor, ReflowResult
from textual.geometry import Region, Size
from textual.screen import Screen
from textual.strip import Strip
from textual.widget import Widget

MOST_WAIT = 0.25
"""Seconds for which a first frame waits for what it is to show."""


class SparseCompositor(Compositor):
    """Textual's own, but for what it asks widgets to draw when a part of the screen has changed."""

    def __init__(self) -> None:
        super().__init__()
        self._changed: tuple[Region, ...] = ()
        """What is being painted; empty while everything is."""
        self._told = self._full_map
        """Where the widgets were when they last heard of it."""

    def reflow(self, parent: Widget, size: Size) -> ReflowResult:
        """Lay everything out; whoever has another size than before is told so.

        Textual compares with the last map that it made, which may be a new one already: asking a widget for its
        size makes one, and the layout that follows would find nothing to tell.
        """
        self._full_map = self._told
        result = super().reflow(parent, size)
        self._told = self._full_map
        return result

    def render_partial_update(self) -> ChopsUpdate | None:
        """Paint what is dirty."""
        self._changed = tuple(self._dirty_regions)
        try:
            return super().render_partial_update()
        finally:
            self._changed = ()

    def _get_renders(self, crop: Region | None = None) -> Iterable[tuple[Region, Region, list[Strip]]]:
        """`(region, clip, strips)` of the widgets in view, the topmost first."""
        if not self._changed:
            yield from self._get_all_renders()
            return
        uncovered = self._changed
        for widget, (region, clip) in self.visible_widgets.items():
            seen = region.intersection(clip)
            parts = changed_rows(seen, uncovered)
            for part in parts:
                yield part, part, widget.render_lines(part.translate(-region.offset))
            if parts:
                uncovered = tuple(area for area in uncovered if not seen.contains_region(area))
            if not uncovered:
                return

    def _get_all_renders(self) -> Iterator[tuple[Region, Region, list[Strip]]]:
        """The same where everything is painted; rows of which others have every cell are not made."""
        uncovered = UncoveredCells(self.size)
        for widget, (region, clip) in self.visible_widgets.items():
            for part in uncovered.take(region.intersection(clip)):
                yield part, part, widget.render_lines(part.translate(-region.offset))


class UncoveredCells:
    """The cells of a screen that no widget has yet, while widgets take them from the topmost down."""

    def __init__(self, size: Size) -> None:
        self._rows = [(1 << size.width) - 1] * size.height
        """A bit for each cell of a row, the first one the lowest."""

    def take(self, region: Region) -> list[Region]:
        """Nobody else gets these cells, all of which are on the screen.

        Returns:
            The rows of `region` of which others had not every cell yet, neighbours in one piece.
        """
        cells = ((1 << region.width) - 1) << region.x
        parts: list[Region] = []
        for y in region.line_range:
            if self._rows[y] & cells:
                self._rows[y] &= ~cells
                if parts and parts[-1].bottom == y:
                    parts[-1] = parts[-1].grow((0, 0, 1, 0))
                else:
                    parts.append(Region(region.x, y, region.width, 1))
        return parts


def changed_rows(region: Region, changed: Iterable[Region]) -> list[Region]:
    """The rows of `region` that a change lies in, from the top; neighbours in one piece."""
    rows = sorted((area.y, area.bottom) for area in changed if area.overlaps(region))
    runs: list[tuple[int, int]] = []
    for top, bottom in rows:
        if runs and top <= runs[-1][1]:
            runs[-1] = (runs[-1][0], max(runs[-1][1], bottom))
        else:
            runs.append((top, bottom))
    return [Region(region.x, top, region.width, bottom - top).intersection(region) for top, bottom in runs]


class SparseScreen(Screen[None]):
    """A screen that is painted so: at once where somebody is typing, and where much was drawn in one go."""

    def __init__(self) -> None:
        super().__init__()
        self._compositor = SparseCompositor()
        self._typed_in: Widget | None = None
        """The widget that got a key, until it is painted."""
        self._is_late = False
        """Whether something was not painted because the terminal was behind."""
        self._is_made: Callable[[], bool] | None = None
        """Whether there is what the first frame waits for; None: it has no need to wait, or was painted."""
        self._paint_at = 0.0
        """When it is painted at the latest; 0: it was not to be painted yet."""
        self._will_look = False
        self._was_shown = False

    def _on_screen_resume(self, event: events.ScreenResume) -> None:
        """Textual, whose own handler is called as well, works out all styles again, for what may have changed while
        the screen was hidden; the first time it was not."""
        event.refresh_styles = self._was_shown and event.refresh_styles
        self._was_shown = True

    async def _on_resize(self, event: events.Resize) -> None:
        """Textual would lay everything out again for a size that is known: at the start it is told three times."""
        if event.size == self._compositor.size:
            event.stop()
            event.prevent_default()

    def paint_when_made(self, is_made: Callable[[], bool]) -> None:
        """The first frame waits, for a moment, until this is so: else it would be drawn twice, the first time
        without text."""
        self._is_made = is_made

    def _compositor_refresh(self) -> None:
        """Paint, unless the first frame waits for what is being made."""
        self._paint_at = self._paint_at or time.monotonic() + MOST_WAIT
        if self._is_made is None or self._is_made() or time.monotonic() >= self._paint_at:
            self._is_made = None
            super()._compositor_refresh()
        elif not self._will_look:
            self._will_look = True
            asyncio.get_running_loop().call_soon(self.call_later, self._look_again)  # others have a turn before

    def _look_again(self) -> None:
        self._will_look = False
        self._compositor_refresh()

    def hurry(self, widget: Widget) -> None:
        """What is about to change in this widget is waited for."""
        self._typed_in = widget

    def paint_soon(self, widget: Widget) -> None:
        """Paint what is dirty of this widget, with the next frame.

        Textual sends two messages for that, to the widget and from it to the screen: of all that a line of text
        costs ten times a second they are a fifth.
        """
        self._dirty_widgets.add(widget)
        self._update_timer.resume()

    async def _on_idle(self, event: events.Idle) -> None:
        """Textual would wait for the next tick of its clock."""
        if self._typed_in is not None and self._typed_in in self._dirty_widgets:
            self._on_timer_update()

    def _on_timer_update(self) -> None:
        """Paint what is dirty, once the terminal has taken the frame before.

        Frames that wait for a slow terminal would be old when it gets them, and a full queue of them would stop
        the loop, keys and all. So nothing is painted meanwhile; then where somebody has typed, and then all else
        that has changed. The timer goes on.
        """
        if getattr(self.app._driver, "is_behind", False):
            self._is_late = True
            self._update_timer.resume()
            return
        typed_in, self._typed_in = self._typed_in, None
        late, self._is_late = self._is_late, False
        rest = self._dirty_widgets - {typed_in}
        if late and rest and typed_in in self._dirty_widgets and not self._must_paint_all:
            self._dirty_widgets -= rest
            super()._on_timer_update()
            self._dirty_widgets |= rest
            self._update_timer.resume()
        else:
            super()._on_timer_update()

    @property
    def _must_paint_all(self) -> bool:
        return bool(self._layout_required or self._scroll_required or self._repaint_required)


def repaint(widget: Widget, *regions: Region) -> None:
    """Paint a widget again, or these regions of its content: nothing else has changed, its size least of all."""
    screen = widget.screen if widget.is_attached else None
    if isinstance(screen, SparseScreen) and widget.is_mounted:
        widget._layout_cache.clear()
        widget._set_dirty(*regions)
        screen.paint_soon(widget)
    else:
        Widget.refresh(widget, *regions)
