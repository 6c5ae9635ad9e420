"""Asks where to go: a block's number, or a step's with an @ before it."""

from pathlib import PurePath
from typing import ClassVar, NamedTuple

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.content import Content
from textual.screen import ModalScreen
from textual.widgets import Input, Static

HINT = "a block, or @ and a step"


class Destination(NamedTuple):
    """A block of the pool, or a step of the recording."""

    block_id: int | None = None
    step: int | None = None


def read_destination(text: str, num_blocks: int) -> Destination | str:
    """What was typed, or one sentence on what is wrong with it. Which steps there are, others know."""
    typed = text.strip()
    number = typed.removeprefix("@").strip()
    if not (number.isascii() and number.isdigit()):
        return f"“{typed}” is not a number. Type {HINT}: 41 or @8100."
    if typed.startswith("@"):
        return Destination(step=int(number))
    if int(number) >= num_blocks:
        return f"There is no block {number}: the pool has 0 to {num_blocks - 1}."
    return Destination(block_id=int(number))


class GotoScreen(ModalScreen[Destination | None]):
    """One line to type in."""

    CSS_PATH: ClassVar[str | PurePath | list[str | PurePath] | None] = "goto.tcss"
    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape", "leave", "Cancel")]

    def __init__(self, num_blocks: int) -> None:
        super().__init__()
        self._num_blocks = num_blocks
        self._input = Input(placeholder=HINT, compact=True, max_length=20)
        self._trouble = Static("", markup=False)

    def compose(self) -> ComposeResult:
        """The input, and what is wrong with what was typed."""
        with Vertical() as box:
            box.border_title = "Go to"
            box.border_subtitle = "Enter goes · Esc cancels"
            yield self._input
            yield self._trouble

    def action_leave(self) -> None:
        """Stay here."""
        self.dismiss(None)

    def on_input_changed(self) -> None:
        """A new try."""
        self._trouble.update("")

    def on_input_submitted(self, event: Input.Submitted) -> None:
        """Go, or say why not."""
        event.stop()
        read = read_destination(event.value, self._num_blocks)
        if isinstance(read, Destination):
            self.dismiss(read)
        else:
            self._trouble.update(Content(read))
