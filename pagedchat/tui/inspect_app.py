"""The program when it shows the inspector of a server and nothing else: no chats, and nothing is changed."""

import time
from collections.abc import Callable, Iterator
from pathlib import PurePath
from typing import ClassVar

from textual import on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.screen import Screen

from pagedchat.errors import PagedChatError
from pagedchat.service.commands import EngineLink
from pagedchat.trace.recorder import Recorder
from pagedchat.tui.actions import PALETTE
from pagedchat.tui.bridge import EngineBridge
from pagedchat.tui.chat.engine_status import StatusBanner, engine_status
from pagedchat.tui.inspector.inspector_keys import INSPECTOR_ACTIONS
from pagedchat.tui.inspector.pool.block_detail import BlockDetail
from pagedchat.tui.inspector.screen import InspectorScreen
from pagedchat.tui.kit.draw_turns import DrawTurns, ScreenPart
from pagedchat.tui.kit.key_bar import KeyBar
from pagedchat.tui.kit.terminal_app import TerminalApp, run_on_terminal
from pagedchat.tui.kit.textual_quirks import start_work, teach_terminal_keys
from pagedchat.tui.messages import (
    BlockChosen,
    EngineStateChanged,
    PaceRequested,
    PauseToggled,
    StepChosen,
    StepRequested,
)
from pagedchat.view.chats.desk import ChatDesk
from pagedchat.view.engine_view import EngineView
from pagedchat.view.options import UiOptions
from pagedchat.view.past.time_travel import TimeTravel
from pagedchat.view.sentences.engine_words import EngineNews

_CHANGES_THE_ENGINE = frozenset({"inspector.pause", "inspector.pace"})
_WAITING_SECONDS = 0.25
_READ_ONLY = "This inspector only looks on; in a terminal with chats (pagedchat --attach) that can be changed."


class WatchScreen(InspectorScreen):
    """The inspector with a word of how the server is."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape,q", "app.quit", "Quit", show=False)]

    def __init__(self, view: EngineView) -> None:
        super().__init__(view)
        self.banner = StatusBanner()

    def compose(self) -> ComposeResult:
        """Header, how the server is, panels, keys."""
        yield self._header
        yield self.banner
        yield self.panel
        keys = [action for action in INSPECTOR_ACTIONS if action.id not in _CHANGES_THE_ENGINE]
        yield KeyBar([*keys, PALETTE], num_always=2)


class InspectApp(TerminalApp):
    """One screen over a server's engine; leaving it ends the program.

    Args:
        link: to the server, not yet connected.
        options: what holds for screens.
        clock: seconds.
    """

    TITLE = "pagedchat inspect"
    CSS_PATH: ClassVar[list[str | PurePath]] = ["app.tcss", "inspector/screen.tcss"]  # a first screen's is not read
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("ctrl+q", "quit", "Quit", show=False, priority=True),
        Binding("f12", "restart", "Try again", show=False),
    ]

    def __init__(self, link: EngineLink, options: UiOptions, clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__(ascii_only=options.ascii)
        teach_terminal_keys()
        if options.theme:
            self.theme = options.theme
        self.keys = options.keymap
        """Action -> keys, where the user gave it others."""
        self.set_keymap(dict(options.keymap))
        self.view = EngineView(clock)
        self.view.attached_to = options.attached
        self._link = link
        self._clock = clock
        self._began = clock()
        self._bridge = EngineBridge(
            link, self.view, ChatDesk(link.send, options), self.post_message, Recorder(joins=True)
        )
        self._travel = TimeTravel(self.view, lambda: self._bridge.recording)
        self._news = EngineNews(self.view)
        self._watch = WatchScreen(self.view)
        self._drawn_at = 0.0
        self._turns = DrawTurns(self._changed_parts)

    @property
    def failure(self) -> PagedChatError | None:
        """Why there is nothing to see."""
        failed = self.view.failure
        return None if failed is None else PagedChatError(failed.message, failed.hint)

    def get_default_screen(self) -> Screen[None]:
        """The inspector."""
        return self._watch

    def on_mount(self) -> None:
        """Connect once the first frame is out."""
        self.call_after_refresh(self._begin)

    def _begin(self) -> None:
        start_work(self, self._bridge.run, "engine events")
        start_work(self, self._turns.run, "drawing")

    # --- drawing ------------------------------------------------------------------------------------

    def _changed_parts(self) -> Iterator[ScreenPart]:
        if not self.screen_stack:
            return
        waits = self.view.info is None and self._clock() >= self._drawn_at + _WAITING_SECONDS
        if not self._bridge.take_dirty() and not waits:
            return
        self._drawn_at = self._clock()
        yield ScreenPart(self._watch.banner, self._say_how_it_is)
        yield from self._watch.parts()
        if self.screen is not self._watch and hasattr(self.screen, "refresh_view"):
            yield ScreenPart(self.screen, self.screen.refresh_view)

    @on(EngineStateChanged)
    def _engine_state_changed(self) -> None:
        if self.screen_stack and self._watch.is_mounted:
            self._say_how_it_is()
            self._watch.refresh_view()

    def _say_how_it_is(self) -> None:
        elapsed = self._clock() - self._began
        self._watch.banner.show(engine_status(self.view, self._bridge.died, elapsed, self.size.width - 2))
        for news in self._news.take():
            self.notify(news.text, severity="error" if news.bad else "information")

    # --- what the panels ask for --------------------------------------------------------------------

    def on_step_chosen(self, message: StepChosen) -> None:
        """Into the past, or back."""
        try:
            self._travel.live() if message.step is None else self._travel.goto(message.step)
        except PagedChatError as error:
            self.notify(str(error), severity="error")
        self._watch.refresh_view()

    def on_block_chosen(self, message: BlockChosen) -> None:
        """There is no chat to light up."""

    @on(PauseToggled)
    @on(StepRequested)
    @on(PaceRequested)
    @on(BlockDetail.PinToggled)
    @on(BlockDetail.EvictRequested)
    def _refuse(self) -> None:
        self.notify(_READ_ONLY, severity="warning")

    def action_restart(self) -> None:
        """Try again to reach the server."""
        self._began = self._clock()
        start_work(self, self._bridge.restart, "restart")

    async def action_quit(self) -> None:
        """Leave; the server goes on."""
        await self._link.close()
        self.exit(return_code=1 if self.view.failure is not None else 0)


def run_inspector(link: EngineLink, options: UiOptions) -> int:
    """Show the inspector until the user quits; returns the exit code.

    Raises:
        PagedChatError: the server could not be attached to; or the screen failed.
    """
    app = InspectApp(link, options)
    exit_code = run_on_terminal(app)
    if app.failure is not None:
        raise app.failure
    return exit_code
