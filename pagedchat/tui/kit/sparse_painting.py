"""Paints a changed screen by asking only the topmost widgets over each change, and only for the rows concerned.

Textual draws a box around all changes and asks every widget in it, and all that lies behind it, for all rows; then
it cuts each row wherever any widget begins or ends. With panes and panels that change in different corners the box
is the screen, and most of the time goes into rows that nobody has changed.
"""

from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any, NamedTuple

from rich.console import Console
from textual import events
from textual._compositor import Compositor, CompositorUpdate, ReflowResult
from textual.geometry import Region, Size
from textual.screen import Screen
from textual.strip import Strip
from textual.widget import Widget


class Painted(NamedTuple):
    """Cells of one row of the screen, from this column on."""

    x: int
    y: int
    strip: Strip


class PaintedRows(CompositorUpdate):
    """What a terminal is to show from now on, in pieces that do not overlap."""

    def __init__(self, pieces: list[Painted]) -> None:
        self.pieces = pieces

    def render_segments(self, console: Console) -> str:
        """As a terminal reads it."""
        return "".join([f"\x1b[{y + 1};{x + 1}H{strip.render(console)}" for x, y, strip in self.pieces])


class SparseCompositor(Compositor):
    """Textual's own, but for what it asks widgets to draw when a part of the screen has changed."""

    def __init__(self) -> None:
        super().__init__()
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

    def render_partial_update(self) -> PaintedRows | None:  # type: ignore[override]
        """Paint what is dirty: of each change what the topmost widget shows there, then what the next one does."""
        screen = self.size.region
        uncovered = [area for each in self._dirty_regions if (area := each.intersection(screen))]
        self._dirty_regions.clear()
        if not uncovered:
            return None
        pieces: list[Painted] = []
        for widget, (region, clip) in self.visible_widgets.items():
            seen = region.intersection(clip)
            found = [area for area in uncovered if area.overlaps(seen)]
            if found:
                pieces += self._painted(widget, region, [area.intersection(seen) for area in found])
                uncovered = [area for area in uncovered if not area.overlaps(seen)]
                uncovered += [rest for area in found for rest in around(area, seen)]
                if not uncovered:
                    break
        return PaintedRows(pieces)

    def _painted(self, widget: Widget, region: Region, areas: list[Region]) -> Iterator[Painted]:
        """These areas of a widget, none of which is behind another widget."""
        rows: dict[int, Strip] = {}
        for first, last in row_runs(areas):
            lines = Region(0, first - region.y, region.width, last - first)
            rows.update(zip(range(first, last), widget.render_lines(lines), strict=False))
        for y, start, stop in self._regions_to_spans(areas):
            if (strip := rows.get(y)) is None:
                continue
            whole = start == region.x and stop == region.x + strip.cell_length
            yield Painted(start, y, strip if whole else strip.crop(start - region.x, stop - region.x))


def row_runs(areas: Iterable[Region]) -> list[tuple[int, int]]:
    """The rows that these areas lie in, neighbours in one piece: the first and the one after the last."""
    runs: list[tuple[int, int]] = []
    for top, bottom in sorted((area.y, area.bottom) for area in areas):
        if runs and top <= runs[-1][1]:
            runs[-1] = (runs[-1][0], max(runs[-1][1], bottom))
        else:
            runs.append((top, bottom))
    return runs


def around(area: Region, hole: Region) -> list[Region]:
    """What is left of an area without what lies in a hole: above it, below it, and on both sides."""
    if not area.overlaps(hole):
        return [area]
    x, y, right, bottom = area.x, area.y, area.right, area.bottom
    top, low = max(y, hole.y), min(bottom, hole.bottom)
    parts = (
        Region.from_corners(x, y, right, top),
        Region.from_corners(x, low, right, bottom),
        Region.from_corners(x, top, min(right, hole.x), low),
        Region.from_corners(max(x, hole.right), top, right, low),
    )
    return [part for part in parts if part.width > 0 and part.height > 0]


class SparseScreen(Screen[None]):
    """A screen that is painted so: at once where somebody is typing, and where much was drawn in one go."""

    def __init__(self) -> None:
        super().__init__()
        self._compositor = SparseCompositor()
        self._typed_in: Widget | None = None
        """The widget that got a key, until it is painted."""
        self._is_late = False
        """Whether something was not painted because the terminal was behind."""
        self._in_frame = False

    def hurry(self, widget: Widget) -> None:
        """What is about to change in this widget is waited for."""
        self._typed_in = widget

    def paint_soon(self, widget: Widget) -> None:
        """Paint what is dirty of this widget, with the next frame.

        Textual sends two messages for that, to the widget and from it to the screen: of all that a line of text
        costs ten times a second they are a fifth.
        """
        self._dirty_widgets.add(widget)
        if not self._in_frame:
            self._update_timer.resume()

    @contextmanager
    def frame(self) -> Iterator[None]:
        """What is drawn inside is painted in one go at its end, without waiting for the clock to tick twice."""
        self._in_frame = True
        try:
            yield
        finally:
            self._in_frame = False
            if self._dirty_widgets:
                self._on_timer_update()

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


def one_frame(screen: Screen[Any]) -> AbstractContextManager[None]:
    """What is drawn inside is painted together where the screen can do that."""
    return screen.frame() if isinstance(screen, SparseScreen) else nullcontext()
