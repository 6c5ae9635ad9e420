"""The program on the screen: starts the engine after the first frame, owns screens, quits cleanly.

Nothing imported here may load torch or a tokenizer: the first frame is drawn before anything heavy begins.
"""

import time
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import TYPE_CHECKING, ClassVar

from textual import events, on
from textual.app import App, SystemCommand
from textual.binding import BindingType
from textual.screen import Screen

from pagedchat.chat.prompt_history import PromptHistory, default_path
from pagedchat.errors import PagedChatError
from pagedchat.events import EngineFailed
from pagedchat.garbage import Garbage
from pagedchat.service.commands import AnyCommand, EngineLink
from pagedchat.trace.recorder import Recorder
from pagedchat.tui.actions import APP_ACTIONS, CHAT_ACTIONS, KeyAction, bindings
from pagedchat.tui.bridge import EngineBridge
from pagedchat.tui.chat.engine_status import engine_status
from pagedchat.tui.chat.screen import ChatScreen
from pagedchat.tui.inspector.inspector_messages import InspectorMessages
from pagedchat.tui.kit.draw_turns import DrawTurns, ScreenPart
from pagedchat.tui.kit.front_screens import ConfirmScreen, TooSmallScreen
from pagedchat.tui.kit.textual_quirks import start_work, teach_terminal_keys
from pagedchat.tui.messages import EngineStateChanged
from pagedchat.view.chats.desk import ChatDesk
from pagedchat.view.chats.layout import LAYOUTS, MIN_SIZE, WIDE_ENOUGH_FOR_PANEL
from pagedchat.view.engine_view import EngineView
from pagedchat.view.options import UiOptions
from pagedchat.view.past.time_travel import TimeTravel
from pagedchat.view.sentences.engine_words import EngineNews

if TYPE_CHECKING:
    from pathlib import Path

    from pagedchat.tui.commands.slash_command import SlashCommand
    from pagedchat.tui.inspector.panel import InspectorPanel
    from pagedchat.tui.tour.start import Tour
    from pagedchat.tui.tour.tour_box import TourBox

__all__ = ["PagedChatApp", "UiOptions", "run_app"]

WAITING_SECONDS = 0.25
"""Between two looks at the screen while the engine says nothing: how long it has been loading is shown too."""


class PagedChatApp(InspectorMessages, App[None]):
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
        self.clock = clock
        self._started = clock()
        self._quitting = False
        self.view = EngineView()
        self.desk = ChatDesk(link.send, options)
        self.bridge = EngineBridge(link, self.view, self.desk, self.post_message, Recorder(options.trace))
        self.time_travel = TimeTravel(self.view, lambda: self.bridge.recording)
        """Over all that was recorded since the start."""
        self.metrics_url = options.metrics_url
        """Where Prometheus finds the engine's metrics; empty if nowhere."""
        self.ascii = options.ascii
        """Whether only ASCII characters may be drawn."""
        self.tour: Tour | None = None
        """The tour, while one is being given."""
        prompts = PromptHistory(default_path()) if history is None else history
        self._chats = ChatScreen(self.desk, self.view, options, prompts)
        self._news = EngineNews(self.view)
        self._turns = DrawTurns(self._changed_parts)
        self._drawn_at = 0.0
        self._model = options.model

    @property
    def chats(self) -> ChatScreen:
        """The screen of the chats."""
        return self._chats

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
        start_work(self, self._turns.run, "drawing")
        start_work(self, Garbage(lambda: self.desk.num_busy > 0).run, "garbage")

    def _start_engine(self) -> None:
        self._started = self.clock()
        start_work(self, self.bridge.run, "engine events")
        start_work(self, self._serve_stats, "stats", exit_on_error=False)
        if self.metrics_url:
            self.notify(f"Metrics: {self.metrics_url}", markup=False)

    async def _serve_stats(self) -> None:
        """`pagedchat stats` in another terminal is answered."""
        from pagedchat.metrics.stats_socket import serve_stats  # noqa: PLC0415 - not needed for the first frame
        from pagedchat.view.stats_answer import StatsAnswer  # noqa: PLC0415 - as above

        await serve_stats(StatsAnswer(self.view, self.desk, self._model, self.metrics_url))

    # --- drawing ------------------------------------------------------------------------------------

    def _changed_parts(self) -> Iterator[ScreenPart]:
        """What there is to draw while the engine works; nothing while it does not."""
        if not self.screen_stack:
            return  # the program is being left
        waits = self.view.info is None or self.desk.num_busy > 0
        if not self.bridge.take_dirty() and not (waits and self.clock() >= self._drawn_at + WAITING_SECONDS):
            return
        self._drawn_at = self.clock()
        yield ScreenPart(self._chats, self._follow_engine)
        if self._chats.is_current:
            yield from self._chats.parts()
        top = self.screen
        if top is not self._chats and hasattr(top, "parts"):
            yield from top.parts()
        elif top is not self._chats and hasattr(top, "refresh_view"):
            yield ScreenPart(top, top.refresh_view)

    @on(EngineStateChanged)
    def _engine_state_changed(self) -> None:
        if self.view.info is not None:
            self._started = self.clock()
        self.redraw()

    def redraw(self) -> None:
        """Draw what changed, now."""
        self._refresh_screens()

    def _refresh_screens(self) -> None:
        self._follow_engine()
        self._chats.refresh_view()
        top = self.screen
        if top is not self._chats and hasattr(top, "refresh_view"):
            top.refresh_view()

    def _follow_engine(self) -> None:
        """What is no part of a screen: how the engine is, what it has to say, the tour."""
        elapsed = self.clock() - self._started
        self._chats.show_status(engine_status(self.view, self.bridge.died, elapsed, self.size.width - 2))
        self._tell_news()
        if self.tour is not None:
            self.tour.look()

    def _tell_news(self) -> None:
        """The tour tells by itself what it does to the pool."""
        for news in self._news.take():
            if news.bad or self.tour is None:
                self.notify(news.text, severity="error" if news.bad else "information", markup=False)

    def complain(self, error: PagedChatError) -> None:
        """Say what went wrong."""
        self.notify(str(error), severity="error", markup=False)

    def send(self, command: AnyCommand) -> None:
        """Ask the engine."""
        self._link.send(command)

    def on_resize(self, event: events.Resize) -> None:
        """Below the least size one sentence stands in front of everything."""
        columns, rows = MIN_SIZE
        too_small = event.size.width < columns or event.size.height < rows
        shown = isinstance(self.screen, TooSmallScreen)
        if too_small and not shown:
            self.push_screen(TooSmallScreen(columns, rows))
        elif shown and not too_small:
            self.pop_screen()

    # --- actions ------------------------------------------------------------------------------------

    def action_help(self) -> None:
        """Open the help page."""
        from pagedchat.tui.help import HelpScreen  # noqa: PLC0415 - not needed for the first frame

        self.push_screen(HelpScreen())

    async def action_inspector(self) -> None:
        """Open or close the inspector: beside the chats on a wide terminal, else in front of them."""
        if self.screen is not self._chats:
            self.action_chats()
        elif self.size.width >= WIDE_ENOUGH_FOR_PANEL:
            await self._chats.toggle_panel()
        else:
            from pagedchat.tui.inspector.screen import InspectorScreen  # noqa: PLC0415 - as above

            self.push_screen(InspectorScreen(self.view))

    def action_chats(self) -> None:
        """Back to the chats from wherever one is."""
        while self.screen is not self._chats and not isinstance(self.screen, TooSmallScreen):
            self.pop_screen()

    def action_pause(self) -> None:
        """Hold the scheduler, or let it run on."""
        self.set_paused(not self.view.paused)

    def action_step(self) -> None:
        """One step of the paused scheduler; one that runs is paused first."""
        self.step(1)

    def open_block(self, block_id: int) -> None:
        """Everything about one block, in front of what is shown."""
        from pagedchat.tui.inspector.pool.block_detail import BlockDetail  # noqa: PLC0415 - not for the first frame

        self.push_screen(BlockDetail(self.view, block_id))

    async def show_inspector(self) -> "InspectorPanel | None":
        """Open the inspector if it is not open."""
        if self.inspector is None:
            await self.action_inspector()
        return self.inspector

    @property
    def inspector(self) -> "InspectorPanel | None":
        """The inspector that can be seen now."""
        return getattr(self.screen, "panel", None)

    async def show_table(self, session_id: int) -> None:
        """A chat's block table in the inspector."""
        from pagedchat.view.blocks.table_layout import Spot  # noqa: PLC0415 - as above

        panel = await self.show_inspector()
        if panel is not None:
            panel.block_tables.lines.spot = Spot(session_id, 0)
            panel.block_tables.lines.focus()

    def open_trace(self, path: "Path") -> None:
        """Replay a recording, in front of the chats."""
        from pagedchat.tui.replay.screen import ReplayScreen  # noqa: PLC0415 - as above

        self.push_screen(ReplayScreen.open(path))

    async def action_tour(self) -> None:
        """Begin the tour, or end the one that is being given."""
        if self.tour is not None:
            await self._leave_tour()
            return
        from pagedchat.tui.tour.start import Tour  # noqa: PLC0415 - as above

        tour = Tour(self)
        await tour.begin()
        self.tour = tour
        self.redraw()

    async def on_tour_box_moved(self, message: "TourBox.Moved") -> None:
        """On, or back."""
        if self.tour is not None and not self.tour.move(message.steps):
            await self._leave_tour()
        self.redraw()

    async def on_tour_box_left(self, message: "TourBox.Left") -> None:
        """Enough."""
        await self._leave_tour()

    async def _leave_tour(self) -> None:
        tour, self.tour = self.tour, None
        if tour is not None:
            await tour.leave()
        self.redraw()

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
            start_work(self, self._close_engine, "close")

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
        yield from self._slash_commands()
        yield SystemCommand("Theme", "Change the colours", self.action_change_theme)
        yield SystemCommand("Screenshot", "Save the screen as an SVG file", self.deliver_screenshot)

    def _slash_commands(self) -> Iterable[SystemCommand]:
        """Those that no action stands for; one that needs an argument is begun in the composer."""
        from pagedchat.tui.commands.registry import COMMANDS  # noqa: PLC0415 - as above

        for command in COMMANDS:
            if command.title:
                yield SystemCommand(
                    command.title, f"{command.help} ({command.usage})", partial(self._slash, command)
                )

    async def _slash(self, command: "SlashCommand") -> None:
        if command.arguments:
            self.action_chats()
            self._chats.write(f"/{command.name} ")
        else:
            await self._chats.run_command(self._chats.focused_chat, f"/{command.name}")

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
