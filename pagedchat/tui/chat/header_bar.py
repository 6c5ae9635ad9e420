"""The screen's first line: the engine's figures."""

from textual.content import Content
from textual.widget import Widget

from pagedchat.tui.chat.header_line import header_line
from pagedchat.tui.kit.ascii_content import content_to_ascii
from pagedchat.view.engine_view import EngineView


class HeaderBar(Widget):
    """Draws itself anew only when a figure changed."""

    DEFAULT_CSS = """
    HeaderBar { height: 1; padding: 0 1; background: $surface; }
    """

    def __init__(self, view: EngineView, model: str) -> None:
        super().__init__()
        self._view = view
        self._model = model
        self._drawn: Content | None = None

    def refresh_view(self) -> None:
        """Take over what changed in the engine."""
        if self._drawn is None or not self._line().is_same(self._drawn):
            self.refresh()

    def render(self) -> Content:
        """The line, cut to the width."""
        self._drawn = self._line()
        return self._drawn

    def _line(self) -> Content:
        line = header_line(self._view, self._model, self.content_size.width)
        return content_to_ascii(line) if getattr(self.app, "ascii", False) else line
