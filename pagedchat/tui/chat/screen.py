"""The chats, and what can be asked of them by key or by slash command.

Keys and slash commands of the same thing call the same method. What cannot be done raises `PagedChatError`: a key
says it in a corner, a command in the chat where it was given.
"""

from collections.abc import Iterable
from typing import TYPE_CHECKING, ClassVar

from textual import on
from textual.binding import BindingType

from pagedchat.chat.sanitize import one_line
from pagedchat.chat.session import ChatSession
from pagedchat.errors import PagedChatError
from pagedchat.tui.actions import CHAT_ACTIONS, FOCUS_BINDINGS, bindings
from pagedchat.tui.chat.chat_tabs import ChatTabs
from pagedchat.tui.chat.prompt_screen import PromptScreen
from pagedchat.tui.kit.front_screens import ConfirmScreen
from pagedchat.view.chats.layout import next_layout
from pagedchat.view.key_names import with_keys

if TYPE_CHECKING:
    from pagedchat.chat.formats.saved_chat import SavedChat
    from pagedchat.tui.inspector.panel import InspectorPanel


class ChatScreen(PromptScreen):
    """The program's main screen."""

    CSS_PATH = "screen.tcss"
    BINDINGS: ClassVar[list[BindingType]] = [*bindings(CHAT_ACTIONS), *FOCUS_BINDINGS]

    # --- layout and focus ---------------------------------------------------------------------------

    def set_layout(self, panes: int | None) -> None:
        """Show this many panes; `None`: as many as there are chats."""
        self._grid.wanted, self._grid.zoomed = panes, False
        self._arrange()
        if panes is not None and self._grid.layout_size < panes:
            self._program.say(f"{panes} panes need a larger terminal; {self._grid.layout_size} fit.")

    def action_next_layout(self) -> None:
        """1, 2, 4, 6, 9 panes, and from the start."""
        self.set_layout(next_layout(self._grid.wanted or self._grid.layout_size))

    def action_zoom(self) -> None:
        """Only this chat, or all again."""
        self._grid.zoomed = not self._grid.zoomed
        self._arrange()

    @on(ChatTabs.Chosen)
    def _tab_chosen(self, event: ChatTabs.Chosen) -> None:
        self.action_focus_number(event.session_id)

    def action_focus_number(self, session_id: int) -> None:
        """To the chat of this number."""
        chat = self._desk.get(session_id)
        if chat is not None:
            self.focus_chat(chat)

    def action_focus_chat(self, step: int) -> None:
        """To the next chat or the one before; the inspector, when it is open, comes after the last."""
        stops: list[ChatSession | InspectorPanel] = [*self._desk.chats]
        if self._panel is not None:
            stops.append(self._panel)
        inside = self._panel is not None and self.focused is not None and self._panel in self.focused.ancestors
        here = len(self._desk) if inside else self._desk.chats.index(self.focused_chat)
        there = stops[(here + step) % len(stops)]
        if isinstance(there, ChatSession):
            self.focus_chat(there)
        else:
            there.block_map.grid.focus()

    # --- replies ------------------------------------------------------------------------------------

    def stop_replies(self, chats: Iterable[ChatSession]) -> bool:
        """End the replies of these chats; false if none is being written."""
        return sum(self._desk.stop(chat) for chat in chats) > 0

    def action_stop(self) -> None:
        """End this chat's reply. With none, put away what is said or selected."""
        chat = self.focused_chat
        if not self.stop_replies([chat]):
            self.clear_selection()
            self.light_block(None)
            if chat.notice is not None:
                chat.dismiss()
        self.refresh_view()

    def regenerate(self, chat: ChatSession) -> None:
        """Another reply to the last prompt.

        Raises:
            PagedChatError: a reply is being written, or there was no prompt.
        """
        if chat.busy:
            raise PagedChatError("A reply is being written.", "/stop or Esc ends it.")
        if not self._desk.regenerate(chat):
            raise PagedChatError("There is no prompt to ask again.", "Send a prompt first.")

    def action_regenerate(self) -> None:
        """Another reply to the last prompt of this chat."""
        with self.saying():
            self.regenerate(self.focused_chat)
        self.refresh_view()

    def copy_reply(self, chat: ChatSession) -> None:
        """The newest reply to the clipboard, as plain text.

        Raises:
            PagedChatError: there is none yet.
        """
        reply = chat.last_reply
        if not reply:
            raise PagedChatError("There is no reply to copy yet.", "Send a prompt first.")
        self._program.copy(reply)

    def action_copy_reply(self) -> None:
        """The newest reply of this chat as plain text."""
        with self.saying():
            self.copy_reply(self.focused_chat)

    def action_copy_or_stop(self) -> None:
        """Copy the selected text; with none, stop the reply; with none, say how to quit."""
        selected = self.get_selected_text()
        if selected:
            self.app.copy_to_clipboard(selected)
            self.clear_selection()
            self._program.say("Copied.")
        elif self.stop_replies([self.focused_chat]):
            self.refresh_view()
        else:
            self._program.say(with_keys("^Q quits."))

    # --- opening and closing ------------------------------------------------------------------------

    async def open_chat(self, name: str = "") -> None:
        """Another chat, in a pane of its own."""
        chat = self._desk.new(name)
        await self.add_pane(chat)
        self.focus_chat(chat)

    async def open_saved(self, saved: "SavedChat") -> None:
        """A chat of a file, in a pane of its own."""
        chat = self._desk.take_in(saved)
        await self.add_pane(chat)
        self.focus_chat(chat)

    async def action_new_chat(self) -> None:
        """Another chat, in a pane of its own."""
        await self.open_chat()

    async def fork_chat(self, source: ChatSession, count: int = 1) -> None:
        """So many more chats over the same blocks, each to the right of its source.

        Raises:
            PagedChatError: the chat is empty.
        """
        if not source.entries:
            raise PagedChatError("There is nothing to fork yet.", "Send a prompt first.")
        for _ in range(count):
            child = self._desk.fork(source)
            await self.add_pane(child, after=source)
            self.focus_chat(child)

    async def action_fork(self) -> None:
        """A second chat over the same blocks as this one."""
        with self.saying():
            await self.fork_chat(self.focused_chat)

    async def leave_chat(self, chat: ChatSession) -> None:
        """Drop a chat; asks first if something would be lost. Leaving the last one leaves the program."""
        if len(self._desk) == 1:
            await self._program.action_quit()
        elif chat.entries:
            question = f"Close {one_line(chat.label)}?"
            self.app.push_screen(
                ConfirmScreen(question, "Its turns are not kept; its blocks are freed.", "close"),
                lambda sure: self.close_chat(chat) if sure else None,
            )
        else:
            self.close_chat(chat)

    async def action_close_chat(self) -> None:
        """Drop this chat."""
        await self.leave_chat(self.focused_chat)

    def close_chat(self, chat: ChatSession) -> None:
        """Drop a chat that is not the only one."""
        index = self._desk.chats.index(chat)
        pane = self._grid.pane(chat.session_id)
        self._desk.close(chat)
        if pane is not None:
            pane.display = False
            pane.remove()
        if chat.session_id == self._focused_id:
            self.focus_chat(self._desk.chats[max(0, index - 1)])
        else:
            self.place_panes()
