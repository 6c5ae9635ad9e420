"""Where in the recording one is: a line under the panels, from the first recorded step to the last."""

from textual.widget import Widget

from pagedchat.tui.engine_view import EngineView


class ScrubBar(Widget):
    """One line."""

    DEFAULT_CSS = """
    ScrubBar { height: 1; width: 1fr; }
    """

    def __init__(self, view: EngineView) -> None:
        super().__init__()
        self.view = view

    def refresh_view(self) -> None:
        """Follow the engine."""
