"""The chats: a grid of panes under the engine's figures, and beside them, if wanted, the inspector."""

from collections.abc import Iterator
from typing import TYPE_CHECKING, ClassVar

from textual import events, on
from textual.app import ComposeResult
from textual.binding import BindingType
from textual.containers import Horizontal

from pagedchat import bundled
from pagedchat.chat.prompt_history import PromptHistory
from pagedchat.chat.sanitize import one_line, sanitize
from pagedchat.chat.session import ChatSession, Notice
from pagedchat.errors import PagedChatError
from pagedchat.tui.actions import (
    APP_ACTIONS,
    CHAT_ACTIONS,
    COMPOSER_ACTIONS,
    FOCUS_BINDINGS,
    PALETTE,
    bindings,
)
from pagedchat.tui.chat.chat_grid import ChatGrid
from pagedchat.tui.chat.chat_tabs import ChatTabs
from pagedchat.tui.chat.command_hints import CommandHints
from pagedchat.tui.chat.composer import Composer
from pagedchat.tui.chat.engine_status import Status, StatusBanner
from pagedchat.tui.chat.event_ticker import EventTicker
from pagedchat.tui.chat.header import HeaderBar
from pagedchat.tui.kit.draw_turns import FIGURES_SECONDS, ScreenPart
from pagedchat.tui.kit.front_screens import ConfirmScreen
from pagedchat.tui.kit.key_bar import KeyBar
from pagedchat.tui.kit.sparse_painting import SparseScreen
from pagedchat.tui.messages import ChatFocused, PromptSubmitted
from pagedchat.view.chats.desk import ChatDesk
from pagedchat.view.chats.layout import CHROME_ROWS, WIDE_ENOUGH_FOR_PANEL, next_layout
from pagedchat.view.engine_view import EngineView
from pagedchat.view.options import UiOptions

if TYPE_CHECKING:
    from pagedchat.tui.inspector.panel import InspectorPanel


class ChatScreen(SparseScreen):
    """The program's main screen."""

    CSS_PATH = "screen.tcss"
    AUTO_FOCUS = ""
    BINDINGS: ClassVar[list[BindingType]] = [*bindings(CHAT_ACTIONS), *FOCUS_BINDINGS]

    def __init__(
        self,
        desk: ChatDesk,
        view: EngineView,
        options: UiOptions,
        history: PromptHistory,
    ) -> None:
        super().__init__()
        self._desk = desk
        self._view = view
        for _ in range(max(1, options.sessions)):
            desk.new()
        self._focused_id = desk.chats[0].session_id
        self._panel: InspectorPanel | None = None
        """The inspector beside the chats, while it is open."""
        self._header = HeaderBar(view, options.model)
        self._banner = StatusBanner()
        self._tabs = ChatTabs()
        self._grid = ChatGrid(desk, view, history, bundled.note(options.model))
        self._ticker = EventTicker(view)
        self._hints = CommandHints()

    def compose(self) -> ComposeResult:
        """Header, banner, tabs, panes, last events, keys."""
        yield self._header
        yield self._banner
        yield self._tabs
        with Horizontal(id="body"):
            yield self._grid
        yield self._ticker
        yield self._hints
        yield KeyBar([*COMPOSER_ACTIONS, *CHAT_ACTIONS, *APP_ACTIONS, PALETTE], num_always=2)

    def on_mount(self) -> None:
        """Begin in the first chat."""
        self._focus_chat(self._desk.chats[0])

    def on_key(self, event: events.Key) -> None:
        """What is typed while nothing has the keyboard belongs to the active chat."""
        pane = self._grid.pane(self._focused_id)
        if self.focused is None and pane is not None and event.is_printable and event.character:
            pane.composer.insert(event.character)
            pane.take_focus()

    # --- drawing ------------------------------------------------------------------------------------

    def show_status(self, status: Status) -> None:
        """Say that the engine is not simply running, or that it is."""
        self._banner.show(status)

    def refresh_view(self) -> None:
        """Draw what changed since the last call."""
        for part in self.parts():
            part.draw()

    def parts(self) -> Iterator[ScreenPart]:
        """The same piece by piece; neighbours on the screen follow each other, for they are painted together."""
        yield ScreenPart(self._header, self._header.refresh_view, FIGURES_SECONDS)
        if self._tabs.display:
            yield ScreenPart(self._tabs, self._show_tabs)
        yield from self._grid.parts()
        if self._panel is not None:
            yield from self._panel.parts()
        yield ScreenPart(self._ticker, self._ticker.refresh_view, FIGURES_SECONDS)

    def _show_tabs(self) -> None:
        self._tabs.show(self._desk.chats, self._focused_id)

    def on_screen_resume(self, event: events.ScreenResume) -> None:
        """While another screen hid this one it was not drawn."""
        self.refresh_view()

    # --- layout -------------------------------------------------------------------------------------

    def on_resize(self, event: events.Resize) -> None:
        """Fewer panes where there is less room; no room for the inspector beside them."""
        if self._panel is not None and event.size.width < WIDE_ENOUGH_FOR_PANEL:
            self._close_panel()
        self._arrange()

    def place_panes(self) -> None:
        """Give every pane its place; the keyboard stays where it is."""
        width = self.size.width // 2 if self._panel is not None else self.size.width
        tour_rows = sum(box.outer_size.height for box in self.query("TourBox"))
        self._grid.arrange_panes(self._focused_id, width, self.size.height - CHROME_ROWS - tour_rows)
        self._tabs.display = self._grid.hides_some
        self.call_after_refresh(self.refresh_view)

    def _arrange(self) -> None:
        self.place_panes()
        self._refocus()

    def set_layout(self, panes: int | None) -> None:
        """Show this many panes; `None`: as many as there are chats."""
        self._grid.wanted, self._grid.zoomed = panes, False
        self._arrange()
        if panes is not None and self._grid.layout_size < panes:
            self.say(f"{panes} panes need a larger terminal; {self._grid.layout_size} fit.")

    def action_next_layout(self) -> None:
        """1, 2, 4, 6, 9 panes, and from the start."""
        self.set_layout(next_layout(self._grid.wanted or self._grid.layout_size))

    def action_zoom(self) -> None:
        """Only this chat, or all again."""
        self._grid.zoomed = not self._grid.zoomed
        self._arrange()

    # --- focus --------------------------------------------------------------------------------------

    @property
    def focused_chat(self) -> ChatSession:
        """The active chat."""
        return self._desk.get(self._focused_id) or self._desk.chats[0]

    def _focus_chat(self, chat: ChatSession) -> None:
        self._focused_id = chat.session_id
        self._desk.focus(chat)
        self._arrange()

    def _refocus(self) -> None:
        """The active chat has the keyboard, unless the tour is being read."""
        pane = self._grid.pane(self._focused_id)
        if pane is not None and not self.query("TourBox:focus"):
            pane.take_focus()

    @on(ChatFocused)
    def _chat_focused(self, event: ChatFocused) -> None:
        chat = self._desk.get(event.session_id)
        if chat is not None and chat.session_id != self._focused_id:
            self._focus_chat(chat)

    @on(ChatTabs.Chosen)
    def _tab_chosen(self, event: ChatTabs.Chosen) -> None:
        self.action_focus_number(event.session_id)

    def action_focus_number(self, session_id: int) -> None:
        """To the chat of this number."""
        chat = self._desk.get(session_id)
        if chat is not None:
            self._focus_chat(chat)

    def action_focus_chat(self, step: int) -> None:
        """To the next chat or the one before; the inspector, when it is open, comes after the last."""
        stops: list[ChatSession | InspectorPanel] = [*self._desk.chats]
        if self._panel is not None:
            stops.append(self._panel)
        inside = self._panel is not None and self.focused is not None and self._panel in self.focused.ancestors
        here = len(self._desk) if inside else self._desk.chats.index(self.focused_chat)
        there = stops[(here + step) % len(stops)]
        if isinstance(there, ChatSession):
            self._focus_chat(there)
        else:
            there.block_map.grid.focus()

    # --- chats --------------------------------------------------------------------------------------

    @on(PromptSubmitted)
    async def _prompt_submitted(self, event: PromptSubmitted) -> None:
        chat = self._desk.get(event.session_id)
        if chat is None:
            return
        if event.prompt.startswith("/"):
            await self._submit_slashed(chat, event.prompt)
        else:
            self._desk.submit(chat, event.prompt)
        self.refresh_view()

    async def _submit_slashed(self, chat: ChatSession, prompt: str) -> None:
        from pagedchat.tui.commands.slash_command import is_command, literal  # noqa: PLC0415 - not for the first frame

        if is_command(prompt):
            await self.run_command(chat, prompt)
        else:
            self._desk.submit(chat, literal(prompt))

    async def run_command(self, chat: ChatSession, line: str) -> None:
        """Carry out a slash command. One that cannot be is explained in the chat, and comes back to be mended."""
        from pagedchat.tui.commands.context import CommandContext  # noqa: PLC0415 - as above
        from pagedchat.tui.commands.registry import run_line  # noqa: PLC0415 - as above

        if chat.notice is not None:
            chat.dismiss()
        try:
            await run_line(CommandContext(self.app, self, chat), line)  # type: ignore[arg-type]  # the only app
        except PagedChatError as error:
            chat.notify(Notice(error.message, error.hint))
            self._give_back(chat, line)

    def _give_back(self, chat: ChatSession, line: str) -> None:
        pane = self._grid.pane(chat.session_id)
        if pane is not None and not pane.composer.text:
            pane.composer.put_before(line)

    def write(self, text: str) -> None:
        """Begin a line in the active chat's composer, if it is empty."""
        self._give_back(self.focused_chat, text)
        self._refocus()

    @on(Composer.CandidatesChanged)
    def _candidates_changed(self, event: Composer.CandidatesChanged) -> None:
        self._hints.show(event.candidates)
        self._ticker.display = not event.candidates

    async def action_new_chat(self) -> None:
        """Another chat, in a pane of its own."""
        await self.open_chat()

    async def open_chat(self, name: str = "") -> None:
        """Another chat."""
        chat = self._desk.new(name)
        await self.add_pane(chat)
        self._focus_chat(chat)

    async def action_fork(self) -> None:
        """A second chat over the same blocks, to the right of this one."""
        if not self.focused_chat.entries:
            self.say("There is nothing to fork yet; send a prompt first.")
            return
        await self.fork_chat(self.focused_chat)

    async def fork_chat(self, source: ChatSession) -> None:
        """Fork a chat that has turns."""
        child = self._desk.fork(source)
        await self.add_pane(child, after=source)
        self._focus_chat(child)

    async def add_pane(self, chat: ChatSession, after: ChatSession | None = None) -> None:
        """A pane for a chat of the desk, at the end or to the right of another."""
        await self._grid.add(chat, after=after)
        self.place_panes()

    def show_chat(self, chat: ChatSession) -> None:
        """Bring a chat into sight; the keyboard stays where it is."""
        self._focused_id = chat.session_id
        self.place_panes()

    def action_stop(self) -> None:
        """End this chat's reply. With none, put away what is said or selected."""
        chat = self.focused_chat
        if not self._desk.stop(chat):
            self.clear_selection()
            self.light_block(None)
            if chat.notice is not None:
                chat.dismiss()
        self.refresh_view()

    def action_regenerate(self) -> None:
        """Another reply to the last prompt."""
        chat = self.focused_chat
        if not self._desk.regenerate(chat):
            self.say("A reply is being written; Esc stops it." if chat.busy else "There is no prompt to ask again.")
        self.refresh_view()

    def action_broadcast(self) -> None:
        """Send what is written here to every chat."""
        pane = self._grid.pane(self._focused_id)
        if pane is None or not pane.composer.text.strip():
            self.say("Write a prompt first; this key sends it to every chat.")
            return
        self._desk.broadcast(pane.composer.take())
        self.refresh_view()

    async def action_close_chat(self) -> None:
        """Drop this chat; asks first if something would be lost. Closing the last one leaves the program."""
        chat = self.focused_chat
        if len(self._desk) == 1:
            await self.run_action("app.quit")
        elif chat.entries:
            question = f"Close {one_line(chat.label)}?"
            self.app.push_screen(
                ConfirmScreen(question, "Its turns are not kept; its blocks are freed.", "close"),
                lambda sure: self.close_chat(chat) if sure else None,
            )
        else:
            self.close_chat(chat)

    def close_chat(self, chat: ChatSession) -> None:
        """Drop a chat that is not the only one."""
        index = self._desk.chats.index(chat)
        pane = self._grid.pane(chat.session_id)
        self._desk.close(chat)
        if pane is not None:
            pane.remove()
        if chat.session_id == self._focused_id:
            self._focus_chat(self._desk.chats[max(0, index - 1)])
        else:
            self.place_panes()

    def light_block(self, block_id: int | None) -> None:
        """Light up the text that this block holds, in every chat that has it."""
        for pane in self._grid.panes:
            pane.light_block(block_id)

    # --- copy ---------------------------------------------------------------------------------------

    def action_copy_or_stop(self) -> None:
        """Copy the selected text; with none, stop the reply; with none, say how to quit."""
        selected = self.get_selected_text()
        if selected:
            self.app.copy_to_clipboard(selected)
            self.clear_selection()
            self.say("Copied.")
        elif self._desk.stop(self.focused_chat):
            self.refresh_view()
        else:
            self.say("^Q quits.")

    def action_copy_reply(self) -> None:
        """The newest reply of this chat as plain text."""
        reply = self.focused_chat.last_reply
        if reply:
            self.app.copy_to_clipboard(sanitize(reply))
            self.say("Copied the last reply.")
        else:
            self.say("There is no reply to copy yet.")

    # --- inspector ----------------------------------------------------------------------------------

    @property
    def panel(self) -> "InspectorPanel | None":
        """The inspector, while it stands beside the chats."""
        return self._panel

    async def toggle_panel(self) -> None:
        """Open the inspector beside the chats, or close it."""
        if self._panel is not None:
            self._close_panel()
        else:
            from pagedchat.tui.inspector.panel import InspectorPanel  # noqa: PLC0415 - not for the first frame

            self._panel = InspectorPanel(self._view)
            await self.query_one("#body").mount(self._panel)
        self._arrange()

    def _close_panel(self) -> None:
        if self._panel is not None:
            self._panel.remove()
            self._panel = None
            self.light_block(None)

    def say(self, message: str) -> None:
        """One short sentence that goes away by itself."""
        self.app.notify(message, timeout=3, markup=False)
