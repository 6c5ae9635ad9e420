"""A recording over the whole screen: the inspector and the chats' text at any step, read-only.

It has a view of its own; whatever engine runs behind it is left alone.
"""

import time
from collections.abc import Callable
from pathlib import Path, PurePath
from typing import ClassVar

from textual import events
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal
from textual.widgets import Input

from pagedchat.errors import PagedChatError
from pagedchat.trace.reader import open_trace
from pagedchat.trace.recording import Recording
from pagedchat.tui.actions import PALETTE, KeyAction
from pagedchat.tui.chat.header import HeaderBar
from pagedchat.tui.chat.past_chats import PastChats
from pagedchat.tui.inspector.inspector_keys import INSPECTOR_ACTIONS
from pagedchat.tui.inspector.panel import InspectorPanel
from pagedchat.tui.kit.key_bar import KeyBar
from pagedchat.tui.kit.sparse_painting import SparseScreen
from pagedchat.tui.messages import BlockChosen, PaceRequested, PauseToggled, StepChosen, StepRequested
from pagedchat.view.engine_view import EngineView
from pagedchat.view.past.playback import Playback
from pagedchat.view.past.time_travel import TimeTravel

PLAY = KeyAction(
    "replay.play", "space", "play", "play", "Play or stop", "At the speed at which it was recorded", priority=True
)
CHATS = KeyAction("replay.chats", "f2", "toggle_chats", "chats", "Chats", "The chats' text, where there is no room")
LEAVE = KeyAction("replay.close", "escape,q", "leave", "close", "Close", "Leave the recording")
WIDE = 110
"""From this width on the chats stand beside the inspector."""
FRAME_SECONDS = 0.1
_LIVE_ONLY = {"inspector.pause", "inspector.pace", "inspector.live"}


class ReplayScreen(SparseScreen):
    """Shows a recording, at its end to begin with.

    Args:
        recording: of a file.
        step: where to begin instead.
        clock: seconds, for playing.

    Raises:
        TraceError: there is no such step, or it is damaged.
    """

    CSS_PATH: ClassVar[str | PurePath | list[str | PurePath] | None] = "screen.tcss"
    TITLE = "replay"
    BINDINGS: ClassVar[list[BindingType]] = [
        PLAY.binding(),
        CHATS.binding(),
        LEAVE.binding(),
        Binding("tab", "app.focus_next", "Next panel", show=False),
        Binding("shift+tab", "app.focus_previous", "Panel before", show=False),
    ]

    def __init__(
        self, recording: Recording, step: int | None = None, clock: Callable[[], float] = time.monotonic
    ) -> None:
        super().__init__()
        self._clock = clock
        self.view = EngineView()
        self.view.token_texts = recording.token_texts
        self.travel = TimeTravel(self.view, lambda: recording, has_live=False)
        self.travel.goto(recording.last_step if step is None else step)
        self.playback = Playback(self.travel)
        self.panel = InspectorPanel(self.view)
        self._damage = recording.damage
        self._chats = PastChats(self.view)
        self._header = HeaderBar(self.view, recording.start.info.model)
        self._ticked = clock()

    @classmethod
    def open(cls, path: Path) -> "ReplayScreen":
        """The recording in a file.

        Raises:
            TraceError: the file cannot be read.
        """
        return cls(open_trace(path))

    def compose(self) -> ComposeResult:
        """Header, chats and panels, keys."""
        yield self._header
        with Horizontal(id="replay-body"):
            yield self._chats
            yield self.panel
        keys = [action for action in INSPECTOR_ACTIONS if action.id not in _LIVE_ONLY]
        yield KeyBar([PLAY, *keys, CHATS, LEAVE, PALETTE], num_always=2)

    def on_mount(self) -> None:
        """Begin on the map; say at once what is missing."""
        self.refresh_view()
        self.panel.block_map.grid.focus()
        self.set_interval(FRAME_SECONDS, self._tick)
        if self._damage:
            self.notify(self._damage, severity="warning")

    def on_resize(self, event: events.Resize) -> None:
        """Chats beside the panels, or in their place."""
        self.set_class(event.size.width < WIDE, "-narrow")

    def refresh_view(self) -> None:
        """Draw what changed since the last call."""
        if self.is_mounted:
            self._header.refresh_view()
            self._chats.refresh_view()
            self.panel.refresh_view()

    # --- time ---------------------------------------------------------------------------------------

    def _tick(self) -> None:
        now = self._clock()
        passed, self._ticked = now - self._ticked, now
        try:
            moved = self.playback.advance(passed)
        except PagedChatError as error:
            self.notify(str(error), severity="error")
            return
        if moved:
            self.refresh_view()

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Space is a space where something is typed."""
        return not (action == "play" and isinstance(self.focused, Input))

    def action_play(self) -> None:
        """Play, or stop."""
        self._ticked = self._clock()
        self.playback.toggle()
        self.refresh_view()

    def action_toggle_chats(self) -> None:
        """The chats in place of the inspector."""
        self.toggle_class("-chats")

    async def action_leave(self) -> None:
        """Back to where one came from."""
        if len(self.app.screen_stack) > 1:
            self.dismiss()
        else:
            self.app.exit()

    def on_step_chosen(self, message: StepChosen) -> None:
        """To a step."""
        message.stop()
        self._go_to(message.step)

    def _go_to(self, step: int | None) -> None:
        self.playback.stop()
        try:
            self.travel.goto(self.travel.last if step is None else step)
        except PagedChatError as error:
            self.notify(str(error), severity="warning")
        self.refresh_view()

    # --- what concerns only the running engine and its chats ----------------------------------------

    def on_block_chosen(self, message: BlockChosen) -> None:
        """The chats behind this screen are others."""
        message.stop()

    def on_pause_toggled(self, message: PauseToggled) -> None:
        """There is nothing to pause."""
        message.stop()

    def on_step_requested(self, message: StepRequested) -> None:
        """As above."""
        message.stop()

    def on_pace_requested(self, message: PaceRequested) -> None:
        """As above."""
        message.stop()
