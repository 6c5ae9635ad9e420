"""Two bases for widgets that change many times a second: one is resized inside, one relabelled, and nothing else moves.

Textual lays the whole screen out anew when a widget's virtual size changes, and paints a widget with all that is in
it when a text in its border does. Neither is needed where only a scroll bar's thumb or one row of the border differs.
"""

from textual.content import Content
from textual.geometry import Region, Size
from textual.scroll_view import ScrollView
from textual.widget import Widget


class QuietScrollView(ScrollView):
    """May get another number of lines without anything outside it being laid out."""

    def set_virtual_size(self, size: Size) -> None:
        """There is so much to scroll over. Only when the scroll bar comes or goes is there something to lay out."""
        before, room = self.virtual_size, self.container_size.height
        if before.width != size.width or not room or (before.height > room) != (size.height > room):
            self.virtual_size = size
            return
        self.set_reactive(Widget.virtual_size, size)
        if self.show_vertical_scrollbar:
            self.vertical_scrollbar.window_virtual_size = size.height
        self.scroll_y = self.validate_scroll_y(self.scroll_y)


class QuietBorder(Widget):
    """Has texts in its border; a new one paints that row of the border only."""

    _edge: int | None = None
    """Row, from the top or (negative) from the bottom, that is about to be painted alone."""

    def set_title(self, text: Content) -> None:
        """The upper border's text."""
        self._edge = 0
        self.border_title = text
        self._edge = None

    def set_subtitle(self, text: Content) -> None:
        """The lower border's text."""
        self._edge = -1
        self.border_subtitle = text
        self._edge = None

    def refresh(
        self, *regions: Region, repaint: bool = True, layout: bool = False, recompose: bool = False
    ) -> "QuietBorder":
        """As in Textual, but for the one row that a new border text asks for."""
        if self._edge is not None and not regions:
            regions = (self._edge_region(self._edge),)
        super().refresh(*regions, repaint=repaint, layout=layout, recompose=recompose)
        return self

    def _edge_region(self, edge: int) -> Region:
        """The row in the coordinates of the content, as `refresh` wants it."""
        width, height = self.outer_size
        left, top = self.content_offset
        return Region(-left, edge % max(1, height) - top, width, 1)
