"""The screens around an engine, or two: they start after the first frame, are followed, and end first."""

import asyncio
import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import TYPE_CHECKING, Any

from textual import on

from pagedchat.chat.prompt_history import PromptHistory
from pagedchat.chat.sanitize import one_line
from pagedchat.errors import PagedChatError
from pagedchat.events import EngineFailed
from pagedchat.garbage import Garbage
from pagedchat.service.commands import EngineLink
from pagedchat.tui.chat.engine_status import engine_status
from pagedchat.tui.engine_group import EngineGroup, EngineGroups
from pagedchat.tui.inspector.listener import InspectorListener
from pagedchat.tui.kit.draw_turns import TEXT_SECONDS, DrawTurns, ScreenPart
from pagedchat.tui.kit.front_screens import ConfirmScreen
from pagedchat.tui.kit.textual_quirks import start_work
from pagedchat.tui.messages import EngineStateChanged
from pagedchat.view.key_names import with_keys
from pagedchat.view.options import UiOptions

if TYPE_CHECKING:
    from pagedchat.tui.models.picker import ChosenModel

WAITING_SECONDS = 0.25
"""Between two looks at the screen while the engine says nothing: how long it has been loading is shown too."""


class EngineApp(InspectorListener):
    """The screens of one engine, and of another beside it.

    Args:
        link: the first engine, not yet started.
        options: what the command line said.
        history: prompts sent before.
        clock: seconds, for how long loading takes.
    """

    def __init__(
        self, link: EngineLink, options: UiOptions, history: PromptHistory, clock: Callable[[], float]
    ) -> None:
        groups = EngineGroups(link, options, self.post_message, clock)
        groups.first.started = clock()
        if options.beside:
            groups.open(options.beside)
        for server in options.servers[not options.has_engine :]:
            groups.open_server(server)
        super().__init__(groups, options, history)
        self.clock = clock
        self._options = options
        self._observed = groups.first
        """The one whose metrics are served, if any are."""
        self._quitting = False
        self._exit_code: int | None = None
        self._turns = DrawTurns(self._changed_parts)
        self._drawn_at = 0.0

    @property
    def failure(self) -> EngineFailed | None:
        """Why the first engine could not start."""
        return self.groups.first.view.failure

    # --- starting -----------------------------------------------------------------------------------

    def on_mount(self) -> None:
        """The engine starts once the first frame is out; until then nobody searches for garbage."""
        self.call_after_refresh(self._start_engine)
        start_work(self, self._turns.run, "drawing")

    def _start_engine(self) -> None:
        start_work(self, Garbage(lambda: self.groups.num_busy > 0).run, "garbage")
        for group in self.groups:
            if group is self.groups.first or group.server is not None:
                self._start_group(group)
        start_work(self, self._serve_stats, "stats", exit_on_error=False)
        if self.metrics_url:
            self.notify(f"Metrics: {self.metrics_url}")

    def _start_group(self, group: EngineGroup) -> None:
        group.started = self.clock()
        start_work(self, group.bridge.run, "engine events")

    def _start_second(self) -> None:
        """Once the first engine has its memory: what is left is known only then."""
        for group in self.groups:
            if group.started is None and all(other is group or other.has_settled for other in self.groups):
                self._start_group(group)

    async def _serve_stats(self) -> None:
        """`pagedchat stats` in another terminal is answered."""
        from pagedchat.metrics.stats_socket import serve_stats  # noqa: PLC0415 - not needed for the first frame
        from pagedchat.view.stats_answer import StatsAnswer, answer_of_all  # noqa: PLC0415 - as above

        began = time.monotonic()

        def answer_of(group: EngineGroup) -> StatsAnswer:
            url = self.metrics_url if group is self._observed else ""
            return StatsAnswer(group.view, group.desk, lambda: group.model, url, began)

        async def answer() -> dict[str, Any]:
            return answer_of_all([answer_of(group) for group in self.groups])

        await serve_stats(answer)

    def action_restart(self) -> None:
        """Start the engine again; asks first where one runs or loads, since what it holds is lost."""
        with self.complaining():
            self.groups.shown.check_started()
            self._restart(self.groups.shown)

    def _restart(self, group: EngineGroup) -> None:
        if group.has_no_engine or (group.server is not None and not group.desk.num_busy):
            self._restart_if(group, True)
        elif group.server is not None and not isinstance(self.screen, ConfirmScreen):
            detail = "Replies being written end here, with the text that they have."
            asked = ConfirmScreen(f"Ask {one_line(group.server.name)} anew?", detail, "ask")
            self.push_screen(asked, lambda sure: self._restart_if(group, sure))
        elif not isinstance(self.screen, ConfirmScreen):
            which = f" of {group.view.called}" if group.view.called else ""
            detail = "Replies being written end here; the chats are kept, the cache is not."
            asked = ConfirmScreen(f"Restart the engine{which}?", detail, "restart")
            self.push_screen(asked, lambda sure: self._restart_if(group, sure))

    def _restart_if(self, group: EngineGroup, sure: bool | None) -> None:
        if sure and not self._quitting:
            group.started = self.clock()
            start_work(self, group.bridge.restart, "restart")

    # --- another model ------------------------------------------------------------------------------

    async def action_model(self) -> None:
        """Choose another model from a list."""
        from pagedchat.tui.models.picker import ModelPicker  # noqa: PLC0415 - not needed for the first frame

        if not isinstance(self.screen, ModelPicker):
            self.push_screen(ModelPicker([group.model for group in self.groups]), self._model_chosen)

    async def _model_chosen(self, chosen: "ChosenModel | None") -> None:
        if chosen is not None:
            with self.complaining():
                await (self.open_beside if chosen.beside else self.switch_model)(chosen.name)

    async def switch_model(self, name: str) -> None:
        """Load another model in place of this one; asks first where replies are being written.

        Raises:
            PagedChatError: there can be no such model, or the one that is there was not started yet.
        """
        from pagedchat.tui.models.named import checked_model  # noqa: PLC0415 - as above

        group = self.groups.shown
        group.check_started()
        name = await asyncio.to_thread(checked_model, name)
        if group.desk.num_busy == 0:
            self._switch_if(group, name, True)
        elif not isinstance(self.screen, ConfirmScreen):
            detail = "Replies being written end here; the chats are kept."
            asked = ConfirmScreen(f"Load {one_line(name)}?", detail, "load")
            self.push_screen(asked, lambda sure: self._switch_if(group, name, sure))

    def _switch_if(self, group: EngineGroup, name: str, sure: bool | None) -> None:
        if not sure or self._quitting or group not in self.groups:
            return
        if group.view.info is not None:
            group.model_before = group.model
        group.model = name
        self.chats.show_model(group)
        group.started = self.clock()
        start_work(self, partial(group.bridge.switch, name), "switch")

    def _say_way_back(self, group: EngineGroup) -> None:
        """To a model that was loaded, once another could not be."""
        if group.view.failure is not None and group.model_before:
            self.notify(f"/model {one_line(group.model_before)} loads the model that was there before.", timeout=20)
            group.model_before = ""
        elif group.view.info is not None:
            group.model_before = ""

    # --- two models ---------------------------------------------------------------------------------

    async def open_beside(self, name: str) -> None:
        """Load another model beside this one: its chats stand in a second group of panes.

        Raises:
            PagedChatError: two are there already, or there can be no such model.
        """
        from pagedchat.tui.models.named import checked_model  # noqa: PLC0415 - as above

        self.groups.check_room()
        name = await asyncio.to_thread(checked_model, name)
        group = self.groups.open(name)
        group.desk.new()
        await self.chats.add_group(group)
        self._start_second()

    async def close_model(self) -> None:
        """End the engine that is shown and close its chats; asks first where one has something in it.

        Raises:
            PagedChatError: it is the only one.
        """
        group = self.groups.shown
        if len(self.groups) == 1:
            raise PagedChatError("There is no second model to go on with.", with_keys("^Q quits."))
        if not any(chat.entries or chat.queue for chat in group.desk):
            self._close_group_if(group, True)
        elif not isinstance(self.screen, ConfirmScreen):
            kept = "stay in the history (^S)" if self.keeps_chats else "are not kept"
            detail = with_keys(f"The turns of its chats {kept}; its engine ends and gives its memory back.")
            asked = ConfirmScreen(f"Close {group.view.called}?", detail, "close")
            self.push_screen(asked, lambda sure: self._close_group_if(group, sure))

    def _close_group_if(self, group: EngineGroup, sure: bool | None) -> None:
        if sure and not self._quitting and group in self.groups and len(self.groups) > 1:
            self.groups.on_change()  # drafts are kept, too
            self.chats.drop_group(group)
            self.groups.close(group)
            self.chats.place_panes()
            start_work(self, group.link.close, "close engine")
            self.groups.on_change()
            self.redraw()

    # --- drawing ------------------------------------------------------------------------------------

    def _changed_parts(self) -> Iterator[ScreenPart]:
        """What there is to draw while the engine works; nothing while it does not."""
        if not self.screen_stack:
            return  # the program is being left
        waits = self.groups.num_busy > 0 or any(
            group.view.info is None or group.view.past is not None for group in self.groups
        )
        dirty = [group.bridge.take_dirty() for group in self.groups]
        if not any(dirty) and not (waits and self.clock() >= self._drawn_at + WAITING_SECONDS):
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
        if not self.screen_stack:
            return  # the program is being left
        self.groups.tell_names()
        for group in self.groups:
            if group.view.info is not None:
                group.started = self.clock()
            self._say_way_back(group)
        self._start_second()
        self.redraw()

    def redraw(self) -> None:
        """Draw what changed, now."""
        self.follow_engine()
        super().redraw()

    def follow_engine(self) -> None:
        """What is no part of a screen: how the engine is, and what it has to say."""
        shown = self.groups.shown
        elapsed = 0.0 if shown.started is None else self.clock() - shown.started
        elsewhere = shown.server is not None
        self.chats.show_status(
            engine_status(self.view, shown.bridge.died, elapsed, self.size.width - 2, elsewhere=elsewhere)
        )
        for group in self.groups:
            who = f"{group.view.called}: " if group.view.called else ""
            for news in group.news.take():
                if news.bad or self.tells_news:
                    self.notify(who + news.text, severity="error" if news.bad else "information")

    @property
    def tells_news(self) -> bool:
        """Whether good news is told, too."""
        return True

    # --- leaving ------------------------------------------------------------------------------------

    async def action_quit(self) -> None:
        """Quit; asks first while replies are being written. A second time it waits for nothing."""
        busy = sum(group.desk.num_busy for group in self.groups if group.view.failure is None)
        if self._quitting:
            self._leave()
        elif isinstance(self.screen, ConfirmScreen):
            self._quit_if(True)
        elif lost := self.lost_by_leaving(busy):
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
        """The engine processes end before the screen goes, so that nothing is left behind."""
        everyone = (*self.groups, *self.groups.ending)
        await asyncio.gather(*(group.link.close() for group in everyone))
        await self.before_leaving()
        self._leave()

    async def before_leaving(self) -> None:
        """What is to be done between the engine's end and the program's."""

    def _leave(self) -> None:
        failed = 1 if self.failure is not None else 0
        self.exit(return_code=failed if self._exit_code is None else self._exit_code)
