"""The screens around an engine: it starts after the first frame, what it does is drawn, and it ends first."""

import asyncio
from collections.abc import Callable, Iterator
from functools import partial

from textual import on

from pagedchat.chat.prompt_history import PromptHistory
from pagedchat.chat.sanitize import one_line
from pagedchat.events import EngineFailed
from pagedchat.garbage import Garbage
from pagedchat.service.commands import EngineLink
from pagedchat.trace.recorder import Recorder
from pagedchat.tui.bridge import EngineBridge
from pagedchat.tui.chat.engine_status import engine_status
from pagedchat.tui.engine_controls import EngineControls
from pagedchat.tui.inspector.listener import InspectorListener
from pagedchat.tui.kit.draw_turns import TEXT_SECONDS, DrawTurns, ScreenPart
from pagedchat.tui.kit.front_screens import ConfirmScreen
from pagedchat.tui.kit.textual_quirks import start_work
from pagedchat.tui.messages import EngineStateChanged
from pagedchat.view.engine_view import EngineView
from pagedchat.view.options import UiOptions
from pagedchat.view.past.time_travel import TimeTravel
from pagedchat.view.sentences.engine_words import EngineNews

WAITING_SECONDS = 0.25
"""Between two looks at the screen while the engine says nothing: how long it has been loading is shown too."""


class EngineApp(InspectorListener):
    """The screens of one engine.

    Args:
        link: the engine, not yet started.
        options: what the command line said.
        history: prompts sent before.
        clock: seconds, for how long loading takes.
    """

    def __init__(
        self, link: EngineLink, options: UiOptions, history: PromptHistory, clock: Callable[[], float]
    ) -> None:
        view = EngineView(clock)
        super().__init__(view, EngineControls(view, link.send), options, history)
        self._link = link
        self.clock = clock
        self._started = clock()
        self._quitting = False
        self._exit_code: int | None = None
        self.bridge = EngineBridge(link, view, self.desk, self.post_message, Recorder(options.trace))
        self.time_travel = TimeTravel(view, lambda: self.bridge.recording)
        self._news = EngineNews(view)
        self._turns = DrawTurns(self._changed_parts)
        self._drawn_at = 0.0
        self._model = options.model
        """What was asked for."""
        self._model_before = ""
        """The one before, until this one is loaded."""

    @property
    def failure(self) -> EngineFailed | None:
        """Why the engine could not start."""
        return self.view.failure

    # --- starting -----------------------------------------------------------------------------------

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
            self.notify(f"Metrics: {self.metrics_url}")

    async def _serve_stats(self) -> None:
        """`pagedchat stats` in another terminal is answered."""
        from pagedchat.metrics.stats_socket import serve_stats  # noqa: PLC0415 - not needed for the first frame
        from pagedchat.view.stats_answer import StatsAnswer  # noqa: PLC0415 - as above

        await serve_stats(StatsAnswer(self.view, self.desk, lambda: self._model, self.metrics_url))

    def action_restart(self) -> None:
        """Start the engine again; asks first where one runs or loads, since what it holds is lost."""
        died = self.bridge.died
        if self.failure is not None or (died is not None and not died.restarting):
            self._restart_if(True)
        elif not isinstance(self.screen, ConfirmScreen):
            detail = "Replies being written end here; the chats are kept, the cache is not."
            self.push_screen(ConfirmScreen("Restart the engine?", detail, "restart"), self._restart_if)

    def _restart_if(self, sure: bool | None) -> None:
        if sure and not self._quitting:
            self._started = self.clock()
            start_work(self, self.bridge.restart, "restart")

    # --- another model ------------------------------------------------------------------------------

    async def action_model(self) -> None:
        """Choose another model from a list."""
        from pagedchat.tui.models.picker import ModelPicker  # noqa: PLC0415 - not needed for the first frame

        if not isinstance(self.screen, ModelPicker):
            self.push_screen(ModelPicker(self._model), self._model_chosen)

    async def _model_chosen(self, name: str | None) -> None:
        if name is not None:
            with self.complaining():
                await self.switch_model(name)

    async def switch_model(self, name: str) -> None:
        """Load another model in place of this one; asks first where replies are being written.

        Raises:
            InvalidValueError: there can be no such model.
        """
        from pagedchat.tui.models.named import checked_model  # noqa: PLC0415 - as above

        name = await asyncio.to_thread(checked_model, name)
        if self.desk.num_busy == 0:
            self._switch_if(name, True)
        elif not isinstance(self.screen, ConfirmScreen):
            detail = "Replies being written end here; the chats are kept."
            asked = ConfirmScreen(f"Load {one_line(name)}?", detail, "load")
            self.push_screen(asked, lambda sure: self._switch_if(name, sure))

    def _switch_if(self, name: str, sure: bool | None) -> None:
        if not sure or self._quitting:
            return
        if self.view.info is not None:
            self._model_before = self._model
        self._model = name
        self.chats.show_model(name)
        self._started = self.clock()
        start_work(self, partial(self.bridge.switch, name), "switch")

    def _say_way_back(self) -> None:
        """Of a model that was loaded, once another could not be."""
        if self.failure is not None and self._model_before:
            self.notify(f"/model {one_line(self._model_before)} loads the model that was there before.", timeout=20)
            self._model_before = ""
        elif self.view.info is not None:
            self._model_before = ""

    # --- drawing ------------------------------------------------------------------------------------

    def _changed_parts(self) -> Iterator[ScreenPart]:
        """What there is to draw while the engine works; nothing while it does not."""
        if not self.screen_stack:
            return  # the program is being left
        waits = self.view.info is None or self.desk.num_busy > 0 or self.view.past is not None
        if not self.bridge.take_dirty() and not (waits and self.clock() >= self._drawn_at + WAITING_SECONDS):
            return
        self._drawn_at = self.clock()
        yield ScreenPart(self.chats, self.follow_engine, TEXT_SECONDS)
        if self.chats.is_current:
            yield from self.chats.parts()
        top = self.screen
        if top is not self.chats and hasattr(top, "parts"):
            yield from top.parts()
        elif top is not self.chats and hasattr(top, "refresh_view"):
            yield ScreenPart(top, top.refresh_view)

    @on(EngineStateChanged)
    def _engine_state_changed(self) -> None:
        if self.view.info is not None:
            self._started = self.clock()
        self._say_way_back()
        self.redraw()

    def redraw(self) -> None:
        """Draw what changed, now."""
        self.follow_engine()
        super().redraw()

    def follow_engine(self) -> None:
        """What is no part of a screen: how the engine is, and what it has to say."""
        elapsed = self.clock() - self._started
        self.chats.show_status(engine_status(self.view, self.bridge.died, elapsed, self.size.width - 2))
        for news in self._news.take():
            if news.bad or self.tells_news:
                self.notify(news.text, severity="error" if news.bad else "information")

    @property
    def tells_news(self) -> bool:
        """Whether good news is told, too."""
        return True

    # --- leaving ------------------------------------------------------------------------------------

    async def action_quit(self) -> None:
        """Quit; asks first while replies are being written. A second time it waits for nothing."""
        busy = self.desk.num_busy
        if self._quitting:
            self._leave()
        elif isinstance(self.screen, ConfirmScreen):
            self._quit_if(True)
        elif lost := self.lost_by_leaving(busy if self.view.failure is None else 0):
            self.push_screen(ConfirmScreen("Quit pagedchat?", lost, "quit"), self._quit_if)
        else:
            self._quit_if(True)

    def lost_by_leaving(self, num_busy: int) -> str:
        """What is said before the program is left while so many replies are being written; empty: nothing is."""
        if not num_busy:
            return ""
        return f"{'A reply is' if num_busy == 1 else f'{num_busy} replies are'} still being written."

    def _quit_if(self, sure: bool | None) -> None:
        if sure:
            self._quitting = True
            start_work(self, self._close_engine, "close")

    def end(self, exit_code: int) -> None:
        """The system wants the program to end: the engine ends first, and nothing is asked."""
        self._exit_code = exit_code
        self._quit_if(True)

    @property
    def ended_from_outside(self) -> bool:
        """Whether the system wanted the program to end."""
        return self._exit_code is not None

    async def _close_engine(self) -> None:
        """The engine process ends before the screen goes, so that nothing is left behind."""
        await self._link.close()
        await self.before_leaving()
        self._leave()

    async def before_leaving(self) -> None:
        """What is to be done between the engine's end and the program's."""

    def _leave(self) -> None:
        failed = 1 if self.failure is not None else 0
        self.exit(return_code=failed if self._exit_code is None else self._exit_code)
