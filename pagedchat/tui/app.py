"""The program on the screen: starts the engine after the first frame, owns screens, quits cleanly.

Nothing imported here may load torch or a tokenizer: the first frame is drawn before anything heavy begins.
"""

import time
from collections.abc import Callable, Iterable
from functools import partial
from typing import TYPE_CHECKING, ClassVar

from textual import events, on
from textual.app import App, SystemCommand
from textual.binding import BindingType
from textual.screen import Screen

from pagedchat.chat.prompt_history import PromptHistory, default_path
from pagedchat.errors import PagedChatError
from pagedchat.events import EngineFailed
from pagedchat.service.commands import Pause, Resume, StepOnce
from pagedchat.service.link import EngineLink
from pagedchat.tui.actions import APP_ACTIONS, CHAT_ACTIONS, KeyAction, bindings
from pagedchat.tui.bridge import FLUSH_SECONDS, EngineBridge
from pagedchat.tui.desk import ChatDesk
from pagedchat.tui.engine_status import engine_status
from pagedchat.tui.engine_view import EngineView
from pagedchat.tui.layout import LAYOUTS, MIN_SIZE, WIDE_ENOUGH_FOR_PANEL
from pagedchat.tui.messages import EngineStateChanged
from pagedchat.tui.options import UiOptions
from pagedchat.tui.screens.chat import ChatScreen
from pagedchat.tui.screens.confirm import ConfirmScreen
from pagedchat.tui.screens.too_small import TooSmallScreen
from pagedchat.tui.terminal_keys import teach_terminal_keys

if TYPE_CHECKING:
    from pagedchat.tui.widgets.inspector_panel import InspectorPanel

__all__ = ["PagedChatApp", "UiOptions", "run_app"]


class PagedChatApp(App[None]):
    """Chats side by side on one engine.

    Args:
        link: the engine, not yet started.
        options: what the command line said.
        history: prompts sent before; by default those kept on disk.
        clock: seconds, for how long loading takes.
    """

    TITLE = "pagedchat"
    CSS_PATH = "app.tcss"
    BINDINGS: ClassVar[list[BindingType]] = [*bindings(APP_ACTIONS)]
    ENABLE_COMMAND_PALETTE = True

    def __init__(
        self,
        link: EngineLink,
        options: UiOptions,
        history: PromptHistory | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        super().__init__()
        teach_terminal_keys()
        self._link = link
        self._clock = clock
        self._started = clock()
        self._quitting = False
        self.view = EngineView()
        self.desk = ChatDesk(link.send, options)
        self.bridge = EngineBridge(link, self.view, self.desk, self.post_message)
        prompts = PromptHistory(default_path()) if history is None else history
        self._chats = ChatScreen(self.desk, self.view, options, prompts)

    @property
    def failure(self) -> EngineFailed | None:
        """Why the engine could not start."""
        return self.view.failure

    def get_default_screen(self) -> Screen[None]:
        """The chats."""
        return self._chats

    def on_mount(self) -> None:
        """The engine starts once the first frame is out."""
        self.call_after_refresh(self._start_engine)
        self.set_interval(FLUSH_SECONDS, self._draw_changes)

    def _start_engine(self) -> None:
        self._started = self._clock()
        self.run_worker(self.bridge.run(), name="engine events", group="engine")

    # --- drawing ------------------------------------------------------------------------------------

    def _draw_changes(self) -> None:
        """The one place from which the screens are drawn anew while the engine works."""
        if self.bridge.take_dirty() or self.view.info is None or self.desk.num_busy:
            self._refresh_screens()

    @on(EngineStateChanged)
    def _engine_state_changed(self) -> None:
        if self.view.info is not None:
            self._started = self._clock()
        self._refresh_screens()

    def _refresh_screens(self) -> None:
        elapsed = self._clock() - self._started
        status = engine_status(self.view, self.bridge.died, elapsed, self.size.width - 2)
        self._chats.refresh_view(status)
        top = self.screen
        if top is not self._chats and hasattr(top, "refresh_view"):
            top.refresh_view()

    def on_resize(self, event: events.Resize) -> None:
        """Below the least size one sentence stands in front of everything."""
        columns, rows = MIN_SIZE
        too_small = event.size.width < columns or event.size.height < rows
        shown = isinstance(self.screen, TooSmallScreen)
        if too_small and not shown:
            self.push_screen(TooSmallScreen())
        elif shown and not too_small:
            self.pop_screen()

    # --- actions ------------------------------------------------------------------------------------

    def action_help(self) -> None:
        """Open the help page."""
        from pagedchat.tui.screens.help import HelpScreen  # noqa: PLC0415 - not needed for the first frame

        self.push_screen(HelpScreen())

    async def action_inspector(self) -> None:
        """Open or close the inspector: beside the chats on a wide terminal, else in front of them."""
        if self.screen is not self._chats:
            self.action_chats()
        elif self.size.width >= WIDE_ENOUGH_FOR_PANEL:
            await self._chats.toggle_panel()
        else:
            from pagedchat.tui.screens.inspector import InspectorScreen  # noqa: PLC0415 - as above

            self.push_screen(InspectorScreen(self.view))

    def action_chats(self) -> None:
        """Back to the chats from wherever one is."""
        while self.screen is not self._chats and not isinstance(self.screen, TooSmallScreen):
            self.pop_screen()

    def action_pause(self) -> None:
        """Hold the scheduler, or let it run on."""
        self._set_paused(not self.view.paused)

    def action_step(self) -> None:
        """One step of the paused scheduler; one that runs is paused first."""
        self._step(1)

    def on_inspector_panel_pause_toggled(self, message: "InspectorPanel.PauseToggled") -> None:
        """The inspector's own key for it."""
        self._set_paused(message.paused)

    def on_inspector_panel_step_requested(self, message: "InspectorPanel.StepRequested") -> None:
        """As above."""
        self._step(message.count)

    def _set_paused(self, paused: bool) -> None:
        self._link.send(Pause() if paused else Resume())

    def _step(self, count: int) -> None:
        self._link.send(StepOnce(count) if self.view.paused else Pause())

    async def action_quit(self) -> None:
        """Quit; asks first while replies are being written. A second time it waits for nothing."""
        busy = self.desk.num_busy
        if self._quitting:
            self._leave()
        elif busy and self.view.failure is None and not isinstance(self.screen, ConfirmScreen):
            replies = "A reply is" if busy == 1 else f"{busy} replies are"
            self.push_screen(
                ConfirmScreen("Quit pagedchat?", f"{replies} still being written.", "quit"), self._quit_if
            )
        else:
            self._quit_if(True)

    def _quit_if(self, sure: bool | None) -> None:
        if sure:
            self._quitting = True
            self.run_worker(self._close_engine(), name="close", group="close")

    async def _close_engine(self) -> None:
        """The engine process ends before the screen goes, so that nothing is left behind."""
        await self._link.close()
        self._leave()

    def _leave(self) -> None:
        self.exit(return_code=1 if self.failure is not None else 0)

    # --- palette ------------------------------------------------------------------------------------

    def get_system_commands(self, screen: Screen[object]) -> Iterable[SystemCommand]:
        """All actions by name, and one command for each layout."""
        for action in (*CHAT_ACTIONS, *APP_ACTIONS):
            yield SystemCommand(action.title, _palette_help(action), partial(self._run_by_name, action))
        yield SystemCommand("Layout: automatic", "As many panes as there are chats", partial(self._layout, None))
        for panes in LAYOUTS:
            text = f"Show {panes} pane{'s' if panes > 1 else ''}"
            yield SystemCommand(f"Layout: {panes}", text, partial(self._layout, panes))
        yield SystemCommand("Theme", "Change the colours", self.action_change_theme)
        yield SystemCommand("Screenshot", "Save the screen as an SVG file", self.deliver_screenshot)

    async def _run_by_name(self, action: KeyAction) -> None:
        await self.run_action(action.action, self._chats)

    def _layout(self, panes: int | None) -> None:
        self._chats.set_layout(panes)


def _palette_help(action: KeyAction) -> str:
    return f"{action.help} ({action.key_display})"


def run_app(link: EngineLink, options: UiOptions) -> int:
    """Run until the user quits.

    Returns:
        The exit status.

    Raises:
        PagedChatError: the engine could not start; what the screen said is then said on the way out too.
    """
    app = PagedChatApp(link, options)
    app.run()
    if app.failure is not None:
        raise PagedChatError(app.failure.message, app.failure.hint)
    return app.return_code or 0
