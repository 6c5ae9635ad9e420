"""Which screen stands in front: the chats, the inspector, one block, help, a recording.

How the engine runs, and how often what it does is drawn, is not known here.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

from textual import events
from textual.screen import Screen

from pagedchat.chat.prompt_history import PromptHistory
from pagedchat.chat.sanitize import sanitize
from pagedchat.chat.session import ChatSession
from pagedchat.errors import PagedChatError
from pagedchat.tui.actions import new_names
from pagedchat.tui.chat.screen import ChatScreen
from pagedchat.tui.engine_controls import EngineControls
from pagedchat.tui.engine_group import EngineGroup, EngineGroups
from pagedchat.tui.kit.front_screens import ConfirmScreen, TooSmallScreen
from pagedchat.tui.kit.keys_in_turn import KeysInTurn, may_move
from pagedchat.tui.kit.terminal_app import TerminalApp
from pagedchat.view.chats.desk import ChatDesk
from pagedchat.view.chats.layout import MIN_SIZE, WIDE_ENOUGH_FOR_PANEL
from pagedchat.view.engine_view import EngineView
from pagedchat.view.key_names import call_keys
from pagedchat.view.options import UiOptions
from pagedchat.view.past.time_travel import TimeTravel
from pagedchat.view.sentences.words import count

if TYPE_CHECKING:
    from pathlib import Path

    from pagedchat.history.run import Reopened
    from pagedchat.tui.commands.program import Chosen
    from pagedchat.tui.inspector.panel import InspectorPanel


def _reopen(groups: EngineGroups, reopened: "Reopened") -> None:
    """The chats of an earlier run, in their groups, in their places and by their numbers."""
    sessions = {session.session_id: session for session in reopened.sessions}
    every = list(groups)
    for pane in reopened.layout.panes:
        desk = every[min(max(0, pane.beside), len(every) - 1)].desk
        if pane.number in sessions:
            desk.add(sessions[pane.number])
        else:
            desk.new(session_id=pane.number)


class ScreensApp(TerminalApp):
    """The screens of one run.

    Args:
        groups: the engines, and their chats.
        options: what the command line said.
        history: prompts sent before.
    """

    def __init__(self, groups: EngineGroups, options: UiOptions, history: PromptHistory) -> None:
        super().__init__(ascii_only=options.ascii)
        self.groups = groups
        if options.history is not None:
            _reopen(groups, options.history.reopened)
        self.metrics_url = options.metrics_url
        """Where Prometheus finds the engine's metrics; empty if nowhere."""
        self.keys = options.keymap
        """Action -> keys, where the user gave it others."""
        self.chats = ChatScreen(self, options, history)
        self._typed: list[events.Event] = []
        """What nobody was given yet: there is no composer to type in, or a key before it may move the keyboard."""
        self._turn = KeysInTurn(self, self._type_on)
        self.set_keymap(dict(options.keymap))
        call_keys(new_names(options.keymap))

    # --- the engine that is shown -------------------------------------------------------------------

    @property
    def view(self) -> EngineView:
        """What is known of it."""
        return self.groups.shown.view

    @property
    def engine(self) -> EngineControls:
        """What can be asked of it."""
        return self.groups.shown.engine

    @property
    def desk(self) -> ChatDesk:
        """Its chats."""
        return self.groups.shown.desk

    @property
    def time_travel(self) -> TimeTravel:
        """Over all that it has done since it was started."""
        return self.groups.shown.time_travel

    # --- the first frame ----------------------------------------------------------------------------

    def get_default_screen(self) -> Screen[None]:
        """The chats."""
        return self.chats

    async def on_event(self, event: events.Event) -> None:
        """What is typed is given out one by one, in its order; while the screen is still being made it is kept."""
        if isinstance(event, events.Key | events.Paste) and not event.is_forwarded:
            self._typed.append(event)
            await self._type_on()
        else:
            await super().on_event(event)

    async def on_pane_screen_can_be_typed_in(self) -> None:
        """What was typed too early arrives now."""
        await self._type_on()

    async def _type_on(self) -> None:
        """Up to a key that may move the keyboard: whoever has it then is given the rest.

        Text goes to the active chat from a panel beside it, too. The chat gets the keyboard here, not on the way of
        the key through the panel: of keys in quick succession one would overtake the other.
        """
        while self._typed and self.chats.takes_keys and not self._turn.under_way:
            event = self._typed.pop(0)
            if self.screen is self.chats and self.chats.is_typing(event):
                self.chats.to_the_chat()
            whose = self.focused or self.screen
            await super().on_event(event)
            if may_move(event):
                self._turn.follow(whose)

    async def action_tour(self) -> None:
        """Begin the tour, or end the one that is being given."""
        raise NotImplementedError

    def action_restart(self) -> None:
        """Start the engine again; asks first where one runs."""
        raise NotImplementedError

    async def action_model(self) -> None:
        """Choose another model from a list."""
        raise NotImplementedError

    async def switch_model(self, name: str) -> None:
        """Load another model in place of this one."""
        raise NotImplementedError

    async def open_beside(self, name: str) -> None:
        """Load another model beside this one, for chats in a second group of panes."""
        raise NotImplementedError

    async def close_model(self) -> None:
        """End one of several engines, and close its chats."""
        raise NotImplementedError

    def choose_server(self) -> None:
        """A list of the servers that are known by name."""
        raise NotImplementedError

    async def open_server(self, text: str) -> None:
        """Ask a server, for chats in another group of panes."""
        raise NotImplementedError

    def choose_place(self, chat: ChatSession) -> None:
        """Move a chat to another group, the only other one or one of several."""
        raise NotImplementedError

    async def move_chat(self, chat: ChatSession, group: EngineGroup) -> None:
        """Have a chat go on in another group."""
        raise NotImplementedError

    def show_history(self, words: str = "") -> None:
        """A list of all chats that are kept."""
        raise NotImplementedError

    async def delete_chat(self, chat: ChatSession) -> None:
        """Take a chat off the screen and off the lists."""
        raise NotImplementedError

    @property
    def keeps_chats(self) -> bool:
        """Whether closed chats can be reopened."""
        return False

    # --- saying -------------------------------------------------------------------------------------

    def say(self, message: str) -> None:
        """One short sentence that goes away by itself."""
        self.notify(message, timeout=3)

    def complain(self, error: PagedChatError) -> None:
        """Say what went wrong."""
        self.notify(str(error), severity="error")

    @contextmanager
    def complaining(self) -> Iterator[None]:
        """What cannot be done is said, and no more comes of it."""
        try:
            yield
        except PagedChatError as error:
            self.complain(error)

    def copy(self, text: str) -> None:
        """Text to the clipboard, without anything that a terminal could take for a command."""
        clean = sanitize(text)
        self.copy_to_clipboard(clean)
        self.say(f"Copied {count(clean.count(chr(10)) + 1, 'line')}.")

    def confirm(self, question: str, detail: str, verb: str, then: Callable[[], None]) -> None:
        """Ask before something is done that cannot be undone."""

        def answered(sure: bool | None) -> None:
            if sure:
                with self.complaining():
                    then()

        self.push_screen(ConfirmScreen(question, detail, verb), answered)

    def choose(self, title: str, choices: Sequence[str], then: "Chosen") -> None:
        """Have one of these lines chosen; `then` gets its index."""
        from pagedchat.tui.kit.picker import Picker  # noqa: PLC0415 - not needed for the first frame

        async def chosen(index: int | None) -> None:
            if index is not None:
                with self.complaining():
                    result = then(index)
                    if result is not None:
                        await result

        self.push_screen(Picker(title, choices), chosen)

    # --- drawing ------------------------------------------------------------------------------------

    def redraw(self) -> None:
        """Draw what changed, now."""
        self.chats.refresh_view()
        top = self.screen
        if top is not self.chats and hasattr(top, "refresh_view"):
            top.refresh_view()

    def on_resize(self, event: events.Resize) -> None:
        """Below the least size one sentence stands in front of everything."""
        columns, rows = MIN_SIZE
        too_small = event.size.width < columns or event.size.height < rows
        shown = isinstance(self.screen, TooSmallScreen)
        if too_small and not shown:
            self.push_screen(TooSmallScreen(columns, rows))
        elif shown and not too_small:
            self.pop_screen()

    # --- from screen to screen ----------------------------------------------------------------------

    def action_help(self) -> None:
        """Open the help page."""
        from pagedchat.tui.help import HelpScreen  # noqa: PLC0415 - not needed for the first frame

        self.push_screen(HelpScreen())

    def action_chats(self) -> None:
        """Back to the chats from wherever one is."""
        while self.screen is not self.chats and not isinstance(self.screen, TooSmallScreen):
            self.pop_screen()
        self.chats.to_the_chat()

    async def action_inspector(self) -> None:
        """Open or close the inspector: beside the chats on a wide terminal, else in front of them."""
        if self.screen is not self.chats:
            self.action_chats()
        elif self.size.width >= WIDE_ENOUGH_FOR_PANEL:
            await self.chats.toggle_panel()
        else:
            from pagedchat.tui.inspector.screen import InspectorScreen  # noqa: PLC0415 - as above

            self.push_screen(InspectorScreen(self.view))

    @property
    def inspector(self) -> "InspectorPanel | None":
        """The inspector that can be seen now."""
        return getattr(self.screen, "panel", None)

    async def show_inspector(self) -> "InspectorPanel | None":
        """Open the inspector if it is not open."""
        if self.inspector is None:
            await self.action_inspector()
        return self.inspector

    async def show_table(self, session_id: int) -> None:
        """A chat's block table in the inspector."""
        from pagedchat.view.blocks.table_layout import Spot  # noqa: PLC0415 - as above

        panel = await self.show_inspector()
        if panel is not None:
            panel.block_tables.lines.spot = Spot(session_id, 0)
            panel.block_tables.lines.focus()

    def open_block(self, block_id: int) -> None:
        """Everything about one block, in front of what is shown."""
        from pagedchat.tui.inspector.pool.block_detail import BlockDetail  # noqa: PLC0415 - as above

        self.push_screen(BlockDetail(self.view, block_id))

    def open_trace(self, path: "Path") -> None:
        """Replay a recording, in front of the chats."""
        from pagedchat.tui.replay.screen import ReplayScreen  # noqa: PLC0415 - as above

        self.push_screen(ReplayScreen.open(path))

    def go_to_step(self, step: int | None) -> None:
        """Show the engine as it was after a recorded step, or as it is.

        Raises:
            PagedChatError: there is no such step, or a server answers, which tells none.
        """
        self.engine.check_recorded()
        try:
            if step is None:
                self.time_travel.live()
            else:
                self.time_travel.goto(step)
        finally:
            self.redraw()

    # --- the scheduler ------------------------------------------------------------------------------

    def action_pause(self) -> None:
        """Hold the scheduler, or let it run on; of two it says which."""
        with self.complaining():
            pauses = not self.view.paused
            self.engine.toggle_pause()
            if self.view.called:
                self.say(f"{self.view.called} {'is paused' if pauses else 'runs on'}.")

    def action_step(self) -> None:
        """One step of the paused scheduler; one that runs is paused first."""
        with self.complaining():
            self.engine.step()
