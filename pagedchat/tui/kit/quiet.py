"""Two bases for widgets that change many times a second: one gets more lines, one other words in its border.

Textual lays the whole screen out anew when a widget's virtual size changes, and paints a widget with all that is in
it when a text in its border does. Neither is needed where only a scroll bar's thumb or one row of the border looks
different.
"""

from math import ceil

from textual.content import Content
from textual.geometry import Region, Size, Spacing
from textual.scroll_view import ScrollView
from textual.scrollbar import ScrollBar
from textual.strip import Strip
from textual.widget import Widget

from pagedchat.tui.kit import sparse_painting


class QuietScrollView(ScrollView):
    """May get another number of lines without anything outside it being laid out."""

    def set_virtual_size(self, size: Size) -> None:
        """There is so much to scroll over. Only when the scroll bar comes or goes is there something to lay out."""
        before, room = self.virtual_size, self.container_size.height
        if size == before:
            return
        if before.width != size.width or not room or (before.height > room) != (size.height > room):
            self.virtual_size = size
            return
        self.set_reactive(Widget.virtual_size, size)
        self._move_thumb()
        self.scroll_y = self.validate_scroll_y(self.scroll_y)

    def watch_scroll_y(self, old_value: float, new_value: float) -> None:
        """Draw the lines that come into sight, and the scroll bar if that changes."""
        self._move_thumb()
        if round(old_value) != round(new_value):
            self.refresh(self.scrollable_content_region.size.region)

    def _move_thumb(self) -> None:
        """Tell the scroll bar where it stands; it is painted only if its thumb looks different then."""
        if not self.show_vertical_scrollbar:
            return
        bar = self.vertical_scrollbar
        before = _thumb(bar)
        bar.set_reactive(ScrollBar.window_virtual_size, self.virtual_size.height)
        bar.set_reactive(ScrollBar.position, self.scroll_y)
        changed = [row for row in _moved_rows(before, _thumb(bar)) if row < bar.size.height]
        if changed:
            sparse_painting.repaint(bar, *(Region(0, row, bar.size.width, 1) for row in changed))

    def refresh(
        self, *regions: Region, repaint: bool = True, layout: bool = False, recompose: bool = False
    ) -> "QuietScrollView":
        """As in Textual, and sooner where only some lines are others."""
        if regions and repaint and not (layout or recompose):
            sparse_painting.repaint(self, *regions)
        else:
            super().refresh(*regions, repaint=repaint, layout=layout, recompose=recompose)
        return self

    def render_lines(self, crop: Region) -> list[Strip]:
        """The lines as they are, where there is nothing around them and nothing laid over them."""
        lines = bare_lines(self, crop)
        return super().render_lines(crop) if lines is None else lines


def bare_lines(widget: Widget, crop: Region) -> list[Strip] | None:
    """The lines that a widget makes, as they are; None where there is something around them, or laid over them.

    Textual would put each into a new strip, and all that it has worked out about a line (its cells, how it is cut,
    what is written to the terminal) would be lost whenever the line is scrolled to another row.
    """
    if not widget.is_attached:  # closed, and not off the screen yet
        return [Strip.blank(crop.width)] * crop.height
    if widget.styles.gutter != Spacing() or widget.opacity < 1:
        return None
    filters, background = widget.get_line_filters(), widget.background_colors[1]
    left, right = crop.column_span
    strips = []
    for y in crop.line_range:
        strip = widget.render_line(y)
        for line_filter in filters:
            strip = strip.apply_filter(line_filter, background)
        strips.append(strip if (left, right) == (0, strip.cell_length) else strip.crop(left, right))
    return strips


def _thumb(bar: ScrollBar) -> tuple[int, int]:
    """Where the thumb begins and ends, in eighths of a cell, as a scroll bar draws it."""
    cells, lines, seen = bar.size.height, bar.window_virtual_size, bar.window_size
    length = max(1.0, seen * cells / max(1, lines))
    start = int(8 * (cells - length) * bar.position / max(1, lines - seen))
    return start, start + ceil(8 * length)


def _moved_rows(before: tuple[int, int], after: tuple[int, int]) -> set[int]:
    """Rows of a scroll bar that look different: those that one of the thumb's ends has passed over."""
    rows: set[int] = set()
    for old, new in zip(before, after, strict=True):
        if old != new:
            rows.update(range(min(old, new) // 8, max(old, new) // 8 + 1))
    return rows


class QuietBorder(Widget):
    """Has texts in its border, and inside only other widgets; a new text paints that row of the border only."""

    _upper: Content | None = None
    _lower: Content | None = None
    _edge: int | None = None
    """Row, from the top or (negative) from the bottom, that is about to be painted alone."""

    def set_title(self, text: Content) -> None:
        """The upper border's text."""
        if self._upper is None or not self._upper.is_same(text):
            self._upper, self._edge = text, 0
            self.border_title = text
            self._edge = None

    def set_subtitle(self, text: Content) -> None:
        """The lower border's text."""
        if self._lower is None or not self._lower.is_same(text):
            self._lower, self._edge = text, -1
            self.border_subtitle = text
            self._edge = None

    def refresh(
        self, *regions: Region, repaint: bool = True, layout: bool = False, recompose: bool = False
    ) -> "QuietBorder":
        """As in Textual, but for the one row that a new border text asks for."""
        if self._edge is not None and not regions:
            sparse_painting.repaint(self, self._edge_region(self._edge))
            return self
        super().refresh(*regions, repaint=repaint, layout=layout, recompose=recompose)
        return self

    def render_lines(self, crop: Region) -> list[Strip]:
        """Between its edges all rows look alike, since what is inside draws itself: one is made for all of them."""
        inside = range(self.gutter.top, self.outer_size.height - self.gutter.bottom)
        alike: Strip | None = None
        lines = []
        for y in crop.line_range:
            if alike is None or y not in inside:
                lines += super().render_lines(Region(crop.x, y, crop.width, 1))
                alike = lines[-1] if y in inside else alike
            else:
                lines.append(alike)
        return lines

    def _edge_region(self, edge: int) -> Region:
        """The row in the coordinates of the content, as `refresh` wants it."""
        width, height = self.outer_size
        left, top = self.content_offset
        return Region(-left, edge % max(1, height) - top, width, 1)
