"""Asks one question before something is lost."""

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

    CSS_PATH = "confirm.tcss"
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
