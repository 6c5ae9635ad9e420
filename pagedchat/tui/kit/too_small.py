"""Stands in front of everything while the terminal has too little room, and goes away by itself."""

from textual.app import ComposeResult
from textual.screen import ModalScreen
from textual.widgets import Static

from pagedchat.view.chats.layout import MIN_SIZE


class TooSmallScreen(ModalScreen[None]):
    """One sentence, short enough for the smallest terminal."""

    DEFAULT_CSS = """
    TooSmallScreen { align: center middle; background: $background; }
    TooSmallScreen > Static { width: 100%; height: auto; text-align: center; color: $text-warning; }
    """

    def compose(self) -> ComposeResult:
        """The sentence."""
        columns, rows = MIN_SIZE
        yield Static(f"pagedchat needs at least {columns}x{rows}; enlarge this terminal.", markup=False)
