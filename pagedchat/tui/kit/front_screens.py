"""Small screens that stand in front of all others: questions before something is lost, and too little room."""

from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.content import Content
from textual.screen import ModalScreen
from textual.widgets import Static

from pagedchat.tui.kit.lines import MUTED


class ConfirmScreen(ModalScreen[bool]):
    """Enter or y: yes. Esc or n: no."""

    CSS_PATH = "front_screens.tcss"
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("enter,y", "answer(True)", "yes"),
        Binding("escape,n,ctrl+c", "answer(False)", "no"),
    ]

    def __init__(self, question: str, detail: str, verb: str) -> None:
        super().__init__()
        self._question = question
        self._detail = detail
        self._verb = verb

    def compose(self) -> ComposeResult:
        """Question, what it means, the two keys."""
        with Vertical():
            yield Static(Content.styled(self._question, "bold"))
            yield Static(Content.styled(self._detail, MUTED))
            yield Static(
                Content.assemble(
                    ("Enter", "bold $text-primary"),
                    (f" {self._verb}   ", MUTED),
                    ("Esc", "bold $text-primary"),
                    (" go back", MUTED),
                )
            )

    def action_answer(self, sure: bool) -> None:
        """Close with the answer."""
        self.dismiss(sure)


class LeaveScreen(ModalScreen[str | None]):
    """Enter or d: `"detach"`. c: `"close"`. Esc: None, go back."""

    CSS_PATH = "front_screens.tcss"
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("enter,d,y", "answer('detach')", "detach"),
        Binding("c", "answer('close')", "close the chats"),
        Binding("escape,n,ctrl+c", "answer('')", "no"),
    ]

    def __init__(self, question: str, detail: str) -> None:
        super().__init__()
        self._question = question
        self._detail = detail

    def compose(self) -> ComposeResult:
        """Question, what it means, the three keys."""
        keys = (("Enter", " leave them there   "), ("c", " close them there   "), ("Esc", " go back"))
        with Vertical():
            yield Static(Content.styled(self._question, "bold"))
            yield Static(Content.styled(self._detail, MUTED))
            yield Static(
                Content.assemble(
                    *(part for key, does in keys for part in ((key, "bold $text-primary"), (does, MUTED)))
                )
            )

    def action_answer(self, choice: str) -> None:
        """Close with the answer."""
        self.dismiss(choice or None)


class TooSmallScreen(ModalScreen[None]):
    """One sentence, short enough for the smallest terminal. Whoever shows it takes it away again.

    Args:
        columns: what the program needs at least.
        rows: as above.
    """

    DEFAULT_CSS = """
    TooSmallScreen { align: center middle; background: $background; }
    TooSmallScreen > Static { width: 100%; height: auto; text-align: center; color: $text-warning; }
    """

    def __init__(self, columns: int, rows: int) -> None:
        super().__init__()
        self._needed = f"{columns}x{rows}"

    def compose(self) -> ComposeResult:
        """The sentence."""
        yield Static(f"pagedchat needs at least {self._needed}; enlarge this terminal.", markup=False)
