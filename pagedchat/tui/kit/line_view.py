"""Two small bases for widgets drawn line by line: one scrolls over any number of lines, one shows a fixed few.

A line is a `Strip`, built once and kept until somebody says that it changed; only changed lines are drawn again.
"""

from collections.abc import Iterable

from rich.segment import Segment
from rich.style import Style
from textual.geometry import Region, Size
from textual.strip import Strip
from textual.widget import Widget

from pagedchat.tui.kit.quiet import QuietScrollView
from pagedchat.view.sentences.words import to_ascii


class LineView(QuietScrollView, can_focus=True):
    """Scrolls over `num_lines` lines, each made by `build_line` when it is first seen."""

    DEFAULT_CSS = """
    LineView { height: 1fr; scrollbar-size-vertical: 1; overflow-x: hidden; }
    """

    def __init__(self) -> None:
        super().__init__()
        self.num_lines = 0
        self._strips: dict[int, Strip] = {}
        self._styles: dict[str, Style] = {}

    def build_line(self, index: int) -> Strip:
        """The line's content, at most `self.size.width` cells; subclasses say what it is."""
        return Strip.blank(self.size.width if index < self.num_lines else 0)

    def set_lines(self, num_lines: int) -> None:
        """There are so many lines now, and every one of them may be another one."""
        self.num_lines = num_lines
        self._strips.clear()
        self.set_virtual_size(Size(self.size.width, num_lines))
        self.refresh()

    def add_lines(self, count: int) -> None:
        """There are so many lines more at the end; the others are what they were."""
        first, self.num_lines = self.num_lines, self.num_lines + count
        self.set_virtual_size(Size(self.size.width, self.num_lines))
        self.lines_changed(range(first, self.num_lines))

    def lines_changed(self, indices: Iterable[int]) -> None:
        """Draw these lines again; those out of sight only when they come into sight."""
        top, height, width = self.scroll_offset.y, self.size.height, self.size.width
        regions = []
        for index in indices:
            self._strips.pop(index, None)
            if top <= index < top + height:
                regions.append(Region(0, index - top, width, 1))
        if regions:
            self.refresh(*regions)

    def render_line(self, y: int) -> Strip:
        """Line API."""
        index = y + self.scroll_offset.y
        if index >= self.num_lines:
            return Strip.blank(self.size.width, self._own_style)
        strip = self._strips.get(index)
        if strip is None:
            strip = self._strips[index] = _filled(self, self.build_line(index), self._own_style)
        return strip

    def notify_style_update(self) -> None:
        """Colours may have changed."""
        super().notify_style_update()
        self._strips.clear()
        self._styles.clear()

    @property
    def _own_style(self) -> Style:
        """The widget's own style, which is dear to work out for every line."""
        style = self._styles.get("")
        if style is None:
            style = self._styles[""] = self.rich_style
        return style

    def style_of(self, component: str) -> Style:
        """A component class as a foreground and a text style, mixed with the background where it is translucent."""
        style = self._styles.get(component)
        if style is None:
            style = self._styles[component] = component_style(self, component)
        return style


class LineBar(Widget):
    """A few lines that others set; as high as there are lines."""

    DEFAULT_CSS = """
    LineBar { height: auto; width: 1fr; }
    """

    def __init__(self, num_lines: int = 1) -> None:
        super().__init__()
        self.strips = [Strip.blank(0)] * num_lines
        self._styles: dict[str, Style] = {}

    def show(self, strips: list[Strip]) -> None:
        """Show these lines, if they are not shown already."""
        if strips == self.strips:
            return
        before, self.strips = self.strips, strips
        if len(before) != len(strips):
            self.refresh(layout=True)
            return
        width = self.size.width
        self.refresh(*(Region(0, y, width, 1) for y, strip in enumerate(strips) if strip != before[y]))

    def style_of(self, component: str) -> Style:
        """As `LineView.style_of`."""
        style = self._styles.get(component)
        if style is None:
            style = self._styles[component] = component_style(self, component)
        return style

    def notify_style_update(self) -> None:
        """Colours may have changed."""
        super().notify_style_update()
        self._styles.clear()

    def get_content_height(self, container: Size, viewport: Size, width: int) -> int:
        """One row a line."""
        return len(self.strips)

    def render_line(self, y: int) -> Strip:
        """Line API."""
        own = self._styles.get("")
        if own is None:
            own = self._styles[""] = self.rich_style
        return _filled(self, self.strips[y] if y < len(self.strips) else Strip.blank(0), own)


def component_style(widget: Widget, component: str) -> Style:
    """A component class as a foreground and a text style, mixed with the widget's background."""
    styles = widget.get_component_styles(component)
    color = widget.background_colors[1] + styles.color
    return Style.from_color(color.rich_color) + styles.text_style


def laid_over(widget: Widget, component: str) -> Style:
    """Only what a component class says, to be laid over another style; what is translucent is mixed already."""
    styles, behind = widget.get_component_styles(component), widget.background_colors[1]
    return Style(
        color=(behind + styles.color).rich_color if styles.has_rule("color") else None,
        bgcolor=(behind + styles.background).rich_color if styles.has_rule("background") else None,
    ) + (styles.text_style or Style())


def _filled(widget: Widget, strip: Strip, style: Style) -> Strip:
    """The strip on the widget's background, exactly as wide as the widget; what is cut off leaves an ellipsis."""
    width = widget.size.width
    if 0 < width < strip.cell_length and not strip.crop(width).text.isspace():
        kept = strip.crop(0, width - 1)
        last = next((segment.style for segment in reversed(list(kept))), None)
        sign = to_ascii("…") if getattr(widget.app, "ascii", False) else "…"
        strip = Strip([*kept, Segment(sign, last)], width)
    return strip.crop_extend(0, width, style).apply_style(style)
