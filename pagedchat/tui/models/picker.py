"""A list of the models that this machine has, to be narrowed by typing; or any other name, typed whole. Does not
know what comes of the choice.
"""

import asyncio
from collections.abc import Collection
from typing import ClassVar, NamedTuple

from textual import on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.content import Content
from textual.screen import ModalScreen
from textual.widgets import Input, OptionList, Static
from textual.widgets.option_list import Option

from pagedchat.chat.sanitize import one_line
from pagedchat.local_models import LocalModel, local_models
from pagedchat.tui.kit.lines import MUTED
from pagedchat.tui.kit.textual_quirks import start_work
from pagedchat.units import format_size

MOST_TYPED = 1000


class ChosenModel(NamedTuple):
    """What was chosen, and where it is to stand."""

    name: str
    beside: bool
    """Beside the model that is there, not in its place."""


class ModelPicker(ModalScreen[ChosenModel | None]):
    """Closes with the model that was chosen; None if none was.

    Args:
        current: the models that are loaded, or are being loaded.
    """

    CSS_PATH = "picker.tcss"
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape,ctrl+c", "leave", "back"),
        Binding("down", "move(1)", "next", show=False),
        Binding("up", "move(-1)", "previous", show=False),
        Binding("alt+enter,ctrl+b", "choose(True)", "beside", show=False, priority=True),
    ]

    def __init__(self, current: Collection[str]) -> None:
        super().__init__()
        self._current = current
        self._models: list[LocalModel] | None = None
        """None while they are being looked for."""
        self._shown: list[LocalModel] = []

    def compose(self) -> ComposeResult:
        """What to type into, what was found, what the keys do."""
        with Vertical():
            yield Static(Content.styled("Which model?", "bold"))
            yield Input(placeholder="a part of a name; or a hub id, a folder, a GGUF file", max_length=MOST_TYPED)
            yield OptionList()
            yield Static(id="model-note")

    def on_mount(self) -> None:
        """The list comes when it has been made: a slow disk keeps nobody waiting."""
        self._list.can_focus = False
        self._draw()
        start_work(self, self._look, "models")

    async def _look(self) -> None:
        self._models = await asyncio.to_thread(local_models)
        self._draw()

    # --- what is shown ------------------------------------------------------------------------------

    @property
    def _list(self) -> OptionList:
        return self.query_one(OptionList)

    @property
    def _typed(self) -> str:
        return self.query_one(Input).value.strip()

    @on(Input.Changed)
    def _narrow(self) -> None:
        self._draw()

    def _draw(self) -> None:
        words = self._typed.lower().split()
        self._shown = [model for model in self._models or [] if all(word in model.name.lower() for word in words)]
        self._list.clear_options()
        self._list.add_options([Option(self._line(model)) for model in self._shown])
        self._list.display = bool(self._shown)
        if self._shown:
            self._list.highlighted = 0
        self.query_one("#model-note", Static).update(self._note())

    def _line(self, model: LocalModel) -> Content:
        mark = " (loaded)" if model.name in self._current else ""
        told = f"  {model.place}, {format_size(model.num_bytes)}{mark}"
        return Content.assemble(one_line(model.name), (told, MUTED))

    def _note(self) -> Content:
        keys = "Enter: in place of this one, the chats stay · Alt+Enter, ^B: beside this one · Esc: back"
        if self._models is None:
            words = "Looking for models …"
        elif self._shown:
            words = keys
        elif self._typed:
            words = f"None here is called so. Enter tries {one_line(self._typed)!r}; a hub id is fetched."
        else:
            words = "There is none on this machine."
        return Content.styled(words, MUTED)

    # --- choosing -----------------------------------------------------------------------------------

    def action_move(self, step: int) -> None:
        """Up or down the list, while typing goes on."""
        if step > 0:
            self._list.action_cursor_down()
        else:
            self._list.action_cursor_up()

    @on(Input.Submitted)
    def _submitted(self) -> None:
        self.action_choose(False)

    def action_choose(self, beside: bool) -> None:
        """The model that stands out, or whatever was typed."""
        place = self._list.highlighted
        if self._shown and place is not None:
            self.dismiss(ChosenModel(self._shown[place].name, beside))
        elif self._typed:
            self.dismiss(ChosenModel(self._typed, beside))

    @on(OptionList.OptionSelected)
    def _clicked(self, event: OptionList.OptionSelected) -> None:
        self.dismiss(ChosenModel(self._shown[event.option_index].name, False))

    def action_leave(self) -> None:
        """Close without a choice."""
        self.dismiss(None)
