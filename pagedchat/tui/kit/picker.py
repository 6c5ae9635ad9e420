"""One of many, found by some of its letters. Knows nothing of what is chosen."""

from collections.abc import Sequence
from pathlib import PurePath
from typing import ClassVar

from textual import events
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.content import Content
from textual.screen import ModalScreen
from textual.widgets import Input, OptionList
from textual.widgets.option_list import Option

from pagedchat.chat.sanitize import one_line
from pagedchat.chat.writing.fuzzy import MOST_TYPED, ranked

MOST_SHOWN = 100


class Picker(ModalScreen[int | None]):
    """Answers with the index of what was chosen; None: nothing was.

    Args:
        title: what is chosen.
        choices: one line of each is shown.
        typed: letters to begin with.
    """

    CSS_PATH: ClassVar[str | PurePath | list[str | PurePath] | None] = "picker.tcss"
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape,ctrl+c", "leave", "Cancel"),
        Binding("up,ctrl+p", "move(-1)", "Up", priority=True),
        Binding("down,ctrl+n,ctrl+r", "move(1)", "Down", priority=True),
    ]

    def __init__(self, title: str, choices: Sequence[str], typed: str = "") -> None:
        super().__init__()
        self._title = title
        self._choices = [one_line(choice) for choice in choices]
        self._input = Input(
            typed, placeholder="some of its letters", compact=True, max_length=MOST_TYPED, select_on_focus=False
        )
        self._list = OptionList(markup=False)
        self._found: list[int] = []

    def compose(self) -> ComposeResult:
        """What is typed, and what is found by it."""
        with Vertical() as box:
            box.border_title = self._title
            box.border_subtitle = "Enter takes it · ↑ ↓ · Esc goes back"
            if getattr(self.app, "ascii", False):
                box.border_subtitle = "Enter takes it, Up, Down, Esc goes back"
            yield self._input
            yield self._list

    def on_mount(self) -> None:
        """Begin with all, or with what was typed before."""
        self._list.can_focus = False
        self._find()
        self._input.focus()

    def on_key(self, event: events.Key) -> None:
        """A key that came before the input had the keyboard."""
        if self.focused is None and event.is_printable and event.character:
            self._input.insert_text_at_cursor(event.character)

    def on_input_changed(self) -> None:
        """Other letters."""
        self._find()

    def _find(self) -> None:
        self._found = ranked(self._input.value, self._choices, MOST_SHOWN)
        self._list.clear_options()
        self._list.add_options([Option(Content(self._choices[index])) for index in self._found])
        self._list.highlighted = 0 if self._found else None

    def action_move(self, step: int) -> None:
        """To the next one, or the one before."""
        if self._found:
            self._list.highlighted = ((self._list.highlighted or 0) + step) % len(self._found)

    def on_input_submitted(self, event: Input.Submitted) -> None:
        """This one."""
        event.stop()
        self._take(self._list.highlighted)

    def on_option_list_option_selected(self, event: OptionList.OptionSelected) -> None:
        """The same with the mouse."""
        event.stop()
        self._take(event.option_index)

    def _take(self, place: int | None) -> None:
        if place is not None and place < len(self._found):
            self.dismiss(self._found[place])

    def action_leave(self) -> None:
        """None of them."""
        self.dismiss(None)
