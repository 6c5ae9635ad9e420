"""An app around one widget, and its drawn lines as plain text."""

from textual.app import App, ComposeResult
from textual.widget import Widget


class WidgetApp(App[None]):
    """Mounts one widget; nothing moves slowly."""

    def __init__(self, widget: Widget) -> None:
        super().__init__()
        self.widget = widget
        self.animation_level = "none"

    def compose(self) -> ComposeResult:
        yield self.widget


def drawn(widget: Widget) -> list[str]:
    """The widget's lines as they stand on the screen, without trailing blanks."""
    return [widget.render_line(y).text.rstrip() for y in range(widget.size.height)]
