"""What the chats share: how many blocks any two of them have in common, what that saves, the tree of prefixes."""

from textual.containers import Vertical

from pagedchat.tui.engine_view import EngineView


class SharingPanel(Vertical):
    """Stands in the place of the block tables when it is asked for."""

    DEFAULT_CSS = """
    SharingPanel { height: 1fr; }
    """

    def __init__(self, view: EngineView) -> None:
        super().__init__()
        self.view = view

    def refresh_view(self) -> None:
        """Follow the engine."""
