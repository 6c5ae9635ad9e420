"""A menu of the kinds of events: each one on or off."""

from pathlib import PurePath
from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.content import Content
from textual.screen import ModalScreen
from textual.widgets import SelectionList
from textual.widgets.selection_list import Selection

from pagedchat.view.sentences.event_lines import GROUPS, MEANINGS


class EventKindsScreen(ModalScreen[frozenset[str]]):
    """Gives back the kinds that are on.

    Args:
        kinds: those that are on now.
        told: kind -> how many lines there are of it.
    """

    CSS_PATH: ClassVar[str | PurePath | list[str | PurePath] | None] = "event_kinds.tcss"
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape,enter,q,E", "leave", "Done", priority=True),
        Binding("a", "all", "All or none"),
    ]

    def __init__(self, kinds: frozenset[str], told: dict[str, int]) -> None:
        super().__init__()
        self._list = SelectionList[str](
            *[
                Selection(Content(f"{kind:<8}{told.get(kind, 0):>5}  {MEANINGS[kind]}"), kind, kind in kinds)
                for kind in GROUPS
            ],
            compact=True,
        )

    def compose(self) -> ComposeResult:
        """One list."""
        self._list.border_title = "Kinds of events"
        self._list.border_subtitle = "space on or off · a all or none · Esc done"
        yield self._list

    def action_leave(self) -> None:
        """Hand the choice back."""
        self.dismiss(frozenset(self._list.selected))

    def action_all(self) -> None:
        """All kinds, or none where all are on."""
        if len(self._list.selected) == len(GROUPS):
            self._list.deselect_all()
        else:
            self._list.select_all()
