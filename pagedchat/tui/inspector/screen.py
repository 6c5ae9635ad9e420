"""The inspector over the whole screen: the engine's figures, the four panels, the keys."""

from collections.abc import Iterator
from pathlib import PurePath
from typing import ClassVar

from textual import events
from textual.app import ComposeResult
from textual.binding import Binding, BindingType

from pagedchat.tui.actions import PALETTE, KeyAction
from pagedchat.tui.chat.header import HeaderBar
from pagedchat.tui.inspector.inspector_keys import INSPECTOR_ACTIONS, MOVE
from pagedchat.tui.inspector.panel import InspectorPanel
from pagedchat.tui.kit.draw_turns import FIGURES_SECONDS, ScreenPart
from pagedchat.tui.kit.key_bar import KeyBar, keys_of
from pagedchat.tui.kit.sparse_painting import SparseScreen
from pagedchat.view.engine_view import EngineView

BACK = KeyAction("inspector.close", "escape,q", "dismiss", "back", "Back", "Back to the chats")


class InspectorScreen(SparseScreen):
    """What is asked for in the panels goes up to the app as messages."""

    CSS_PATH: ClassVar[str | PurePath | list[str | PurePath] | None] = "screen.tcss"
    TITLE = "inspector"
    BINDINGS: ClassVar[list[BindingType]] = [
        BACK.binding(),
        Binding("tab", "app.focus_next", "Next panel", show=False),
        Binding("shift+tab", "app.focus_previous", "Panel before", show=False),
    ]

    def __init__(self, view: EngineView) -> None:
        super().__init__()
        self.panel = InspectorPanel(view)
        self._header = HeaderBar(view, "")
        self._keys = KeyBar([*INSPECTOR_ACTIONS, BACK, PALETTE], num_always=2)

    def compose(self) -> ComposeResult:
        """Header, panels, keys."""
        yield self._header
        yield self.panel
        yield self._keys

    def on_mount(self) -> None:
        """Begin on the map, or on what a server tells."""
        self.refresh_view()
        first = self.panel.block_map.grid if self.panel.view.server is None else self.panel.server_panel
        first.focus()

    def refresh_view(self) -> None:
        """Draw what changed in the engine since the last call."""
        for part in self.parts():
            part.draw()

    def parts(self) -> Iterator[ScreenPart]:
        """The same piece by piece."""
        yield ScreenPart(self._header, self._header.refresh_view, FIGURES_SECONDS)
        yield ScreenPart(self._keys, self._show_keys, FIGURES_SECONDS)
        yield from self.panel.parts()

    def on_descendant_focus(self, event: events.DescendantFocus) -> None:
        """The tour has keys of its own."""
        self._show_keys()

    def _show_keys(self) -> None:
        """Of a server there are figures to read, and nothing to be done."""
        if keys := keys_of(self.focused):
            self._keys.show([*keys, MOVE, PALETTE])
            return
        told = INSPECTOR_ACTIONS if self.panel.view.server is None else ()
        self._keys.show([*told, BACK, PALETTE])
