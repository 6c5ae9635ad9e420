"""The program when it shows a recording and nothing else: no engine, no chats."""

from collections.abc import Mapping
from pathlib import PurePath
from typing import ClassVar

from textual.binding import Binding, BindingType
from textual.screen import Screen

from pagedchat.trace.recording import Recording
from pagedchat.tui.kit.terminal_app import TerminalApp
from pagedchat.tui.kit.textual_quirks import teach_terminal_keys
from pagedchat.tui.replay.screen import ReplayScreen


class ReplayApp(TerminalApp):
    """One replay screen; leaving it ends the program.

    Args:
        recording: of a file.
        step: where to begin; at the end by default.
        ascii_only: whether only ASCII characters may be drawn.
        theme: colours by name; the library's own by default.
        keymap: action -> keys, where they are not its own.

    Raises:
        TraceError: there is no such step, or it is damaged.
    """

    TITLE = "pagedchat replay"
    CSS_PATH: ClassVar[list[str | PurePath]] = ["../app.tcss", "screen.tcss"]  # a first screen's is not read
    BINDINGS: ClassVar[list[BindingType]] = [Binding("ctrl+q", "quit", "Quit", show=False, priority=True)]

    def __init__(
        self,
        recording: Recording,
        step: int | None = None,
        *,
        ascii_only: bool = False,
        theme: str = "",
        keymap: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(ascii_only=ascii_only)
        teach_terminal_keys()
        if theme:
            self.theme = theme
        self.keys = dict(keymap or {})
        """Action -> keys, where the user gave it others."""
        self.set_keymap(self.keys)
        self._replay = ReplayScreen(recording, step)

    def get_default_screen(self) -> Screen[None]:
        """The recording."""
        return self._replay
