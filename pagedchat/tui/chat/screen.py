"""The chats, and what can be asked of them by key or by slash command.

Keys and slash commands of the same thing call the same method. What cannot be done raises `PagedChatError`: a key
says it in a corner, a command in the chat where it was given.
"""

from collections.abc import Iterable
from typing import TYPE_CHECKING, ClassVar

from textual import on
from textual.binding import BindingType

from pagedchat.chat.plain_text import code_blocks, whole_chat
from pagedchat.chat.sanitize import one_line
from pagedchat.chat.session import ChatSession
from pagedchat.errors import PagedChatError
from pagedchat.tui.actions import CHAT_ACTIONS, FOCUS_BINDINGS, bindings
from pagedchat.tui.chat.alternatives_panel import AlternativesPanel
from pagedchat.tui.chat.chat_tabs import ChatTabs
from pagedchat.tui.chat.prompt_screen import PromptScreen
from pagedchat.tui.kit.front_screens import ConfirmScreen
from pagedchat.view.chats.layout import next_layout
from pagedchat.view.chats.likelihood import TokenPlace
from pagedchat.view.key_names import with_keys
from pagedchat.view.sentences.words import count

if TYPE_CHECKING:
    from pagedchat.chat.formats.saved_chat import SavedChat
    from pagedchat.tui.branches.tree_panel import TreePanel
    from pagedchat.tui.inspector.panels import Panel


class ChatScreen(PromptScreen):
    """The program's main screen."""

    CSS_PATH = "screen.tcss"
    BINDINGS: ClassVar[list[BindingType]] = [*bindings(CHAT_ACTIONS), *FOCUS_BINDINGS]

    # --- layout and focus ---------------------------------------------------------------------------

    def set_layout(self, panes: int | None) -> None:
        """Show this many panes; `None`: as many as there are chats."""
        self._lay_out(panes, zoomed=False)
        self._arrange()
        if panes is not None and self._grid.layout_size < panes:
            self._program.say(f"{panes} panes need a larger terminal; {self._grid.layout_size} fit.")

    def action_next_layout(self) -> None:
        """1, 2, 4, 6, 9 panes, and from the start."""
        self.set_layout(next_layout(self._grid.wanted or self._grid.layout_size))

    def action_zoom(self) -> None:
        """Only this chat, or all again."""
        self._lay_out(self._grid.wanted, zoomed=not self._grid.zoomed)
        self._arrange()

    @on(ChatTabs.Chosen)
    def _tab_chosen(self, event: ChatTabs.Chosen) -> None:
        self.action_focus_number(event.session_id)

    def action_focus_number(self, session_id: int) -> None:
        """To the chat of this number."""
        chat = self._groups.get(session_id)
        if chat is not None:
            self.focus_chat(chat)

    def action_focus_chat(self, step: int) -> None:
        """To the next chat or the one before; the inspector's panels, when it is open, come after the last."""
        panels = self._panel.panels if self._panel is not None and self._panel.panels.display else None
        places = [place for place in panels.places if place.display] if panels is not None else []
        stops: list[ChatSession | Panel] = [*self._groups.chats, *places]
        inside = self._panel.panels.focused_panel() if self._panel is not None and self.in_panel else None
        here = stops.index(inside if inside is not None else self.focused_chat)
        there = stops[(here + step) % len(stops)]
        if isinstance(there, ChatSession):
            self.focus_chat(there)
        elif self._panel is not None:
            self._panel.panels.give_focus(there)

    # --- replies ------------------------------------------------------------------------------------

    def stop_replies(self, chats: Iterable[ChatSession]) -> bool:
        """End the replies of these chats; false if none is being written."""
        return sum(self._desk_of(chat).stop(chat) for chat in chats) > 0

    def action_stop(self) -> None:
        """End this chat's reply. With none, put away what is said or selected. From a panel: back to the chat."""
        chat = self.focused_chat
        if self.in_panel:
            self.to_the_chat()
        elif not self.stop_replies([chat]):
            self.clear_selection()
            self.light_block(None)
            if (pane := self._pane(chat.session_id)) is not None:
                pane.alternatives.close()
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
        if not self._desk_of(chat).regenerate(chat):
            raise PagedChatError("There is no prompt to ask again.", "Send a prompt first.")

    def continue_reply(self, chat: ChatSession) -> None:
        """Go on with the last reply, where it was cut short.

        Raises:
            PagedChatError: a reply is being written, or the last one came to its end.
        """
        self._check_idle(chat)
        if not self._desk_of(chat).go_on(chat):
            raise PagedChatError("The last reply came to its end.", "^G asks for another one.")

    def action_continue_reply(self) -> None:
        """Go on with the last reply of this chat."""
        with self.saying():
            self.continue_reply(self.focused_chat)
        self.refresh_view()

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

    def copy_code(self, chat: ChatSession) -> None:
        """The last block of code of the newest reply to the clipboard.

        Raises:
            PagedChatError: there is none.
        """
        code = code_blocks(chat.last_reply or "")
        if not code:
            raise PagedChatError("The last reply has no code block.", "/copy takes all of it.")
        self._program.copy(code[-1])

    def action_copy_code(self) -> None:
        """The last block of code of this chat."""
        with self.saying():
            self.copy_code(self.focused_chat)

    def copy_chat(self, chat: ChatSession) -> None:
        """All of a chat to the clipboard, as Markdown.

        Raises:
            PagedChatError: nothing was said yet.
        """
        if not chat.entries:
            raise PagedChatError("There is nothing to copy yet.", "Send a prompt first.")
        self._program.copy(whole_chat(chat))

    def action_copy_chat(self) -> None:
        """All of this chat."""
        with self.saying():
            self.copy_chat(self.focused_chat)

    def action_toggle_thought(self) -> None:
        """Open or fold what the model thought last in this chat."""
        pane = self._pane(self._focused_id)
        if pane is None or not pane.transcript.toggle_thought():
            self._program.say("There is no thought in this chat.")

    def action_toggle_markdown(self) -> None:
        """Replies as Markdown, or as they were written."""
        reading = self._desk.reading
        reading.markdown = "off" if reading.reading(self._view.info).markdown else "on"
        drawn = reading.markdown == "on"
        self._program.say("Replies are drawn as Markdown." if drawn else "Replies are drawn as they were written.")
        self.refresh_view()

    def show_likelihood(self, chats: Iterable[ChatSession], count: int | None) -> None:
        """Ask of the replies to come how sure the model was, and for so many alternatives of each token; `None`
        asks no more, and replies are not coloured."""
        for chat in chats:
            chat.set_sampling("logprobs", count)
        self.refresh_view()

    def action_alternatives(self) -> None:
        """The alternatives of each token of this chat's replies, or back to the prompt."""
        pane = self._pane(self._focused_id)
        with self.saying():
            if pane is not None:
                pane.open_alternatives()

    @on(AlternativesPanel.ForkWanted)
    async def _token_fork_wanted(self, event: AlternativesPanel.ForkWanted) -> None:
        chat = self._groups.get(event.session_id)
        with self.saying():
            if chat is not None:
                await self.fork_with_token(chat, event.place, event.token_id)

    async def fork_with_token(self, source: ChatSession, place: TokenPlace, token_id: int) -> None:
        """A new chat to the right that goes on from within a reply with another token.

        Raises:
            PagedChatError: the reply is another one by now.
        """
        child = self._desk_of(source).fork_with_token(source, place, token_id)
        await self.add_pane(child, after=source)
        self.focus_chat(child)

    def action_copy_reply(self) -> None:
        """The newest reply of this chat as plain text."""
        with self.saying():
            self.copy_reply(self.focused_chat)

    def action_copy_or_stop(self) -> None:
        """Copy the selected text; with none, stop the reply; with none, empty the prompt; then say how to quit."""
        pane = self._pane(self._focused_id)
        selected = self.get_selected_text()
        if selected:
            self.app.copy_to_clipboard(selected)
            self.clear_selection()
            self._program.say("Copied.")
        elif self.stop_replies([self.focused_chat]):
            self.refresh_view()
        elif pane is not None and self.focused is pane.composer and pane.composer.empty():
            self._program.say("^Z brings it back.")
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

    async def fork_chat(self, source: ChatSession, count: int = 1, num_prompts: int | None = None) -> None:
        """So many more chats over the same blocks, each to the right of its source; with the first so many prompts
        of it, or all.

        Raises:
            PagedChatError: the chat is empty.
        """
        if not source.entries:
            raise PagedChatError("There is nothing to fork yet.", "Send a prompt first.")
        child = source
        for _ in range(count):
            at = source.num_prompts if num_prompts is None else num_prompts
            before, child = child, self._desk_of(source).fork_at(source, at, after=child)
            await self.add_pane(child, after=before)
        self.focus_chat(child)

    async def action_fork(self) -> None:
        """A second chat over the same blocks as this one."""
        with self.saying():
            await self.fork_chat(self.focused_chat)

    # --- branches -----------------------------------------------------------------------------------

    async def reply_besides(self, chat: ChatSession, count: int) -> None:
        """So many other replies to the last prompt, each in a fork to the right.

        Raises:
            PagedChatError: a reply is being written, or there was no prompt.
        """
        self._check_idle(chat)
        before = chat
        for _ in range(count):
            child = self._desk_of(chat).reply_besides(chat, after=before)
            if child is None:
                raise PagedChatError("There is no prompt to ask again.", "Send a prompt first.")
            await self.add_pane(child, after=before)
            before = child
        self.refresh_view()

    async def ask_several(self, chat: ChatSession, count: int, prompt: str) -> None:
        """So many answers to one prompt that grow side by side: the first here, the others in forks to the right.

        Raises:
            PagedChatError: a reply is being written.
        """
        self._check_idle(chat)
        filled, desk = self.filled(prompt), self._desk_of(chat)
        before, twins = chat, desk.twins(chat, count - 1, prompt)
        for child in twins:
            await self.add_pane(child, after=before)
            before = child
        if desk.needs_successor(chat, filled):
            self.send_to([chat, *twins], prompt)
        else:
            desk.submit_together([chat, *twins], filled)
        self.refresh_view()

    def search_reply(self, chat: ChatSession, beam_width: int, prompt: str = "") -> None:
        """A reply by beam search, to this prompt, or another one to the last.

        Raises:
            PagedChatError: a reply is being written, or there was no prompt.
        """
        self._check_idle(chat)
        if not self._desk_of(chat).search(chat, beam_width, self.filled(prompt)):
            raise PagedChatError("There is no prompt to answer.", "Type /beam N PROMPT, or send one first.")
        self.refresh_view()

    def edit_prompt(self, chat: ChatSession, number: int | None = None) -> None:
        """Go back before a prompt, which is put into the composer.

        Raises:
            PagedChatError: a reply is being written, nothing was asked, or something else is being written.
        """
        self._check_idle(chat)
        pane = self._pane(chat.session_id)
        if pane is not None and pane.composer.text.strip():
            raise PagedChatError("Something is written here already.", "Send it or empty it first.")
        prompts = self._desk_of(chat).take_back(chat, (number or chat.num_prompts) - 1)
        if not prompts:
            raise PagedChatError("There is no prompt to edit yet.", "Send one first.")
        chat.return_prompt(prompts[0])
        self.refresh_view()

    def action_edit_prompt(self) -> None:
        """Write the last prompt of this chat anew."""
        with self.saying():
            self.edit_prompt(self.focused_chat)

    def take_back(self, chat: ChatSession, count: int) -> None:
        """Go back behind the reply before so many prompts.

        Raises:
            PagedChatError: a reply is being written, or nothing was asked.
        """
        self._check_idle(chat)
        if not self._desk_of(chat).take_back(chat, chat.num_prompts - count):
            raise PagedChatError("There is nothing to take back yet.", "Send a prompt first.")
        self._program.say("Taken back; it is still a branch of the tree (Alt+Down).")
        self.refresh_view()

    def go_to_sibling(self, chat: ChatSession, step: int) -> None:
        """To the branch before or behind this one.

        Raises:
            PagedChatError: a reply is being written, or there is none.
        """
        self._check_idle(chat)
        there = chat.sibling(step)
        if there is None:
            place, count = chat.branch
            which = "There is no other branch" if count == 1 else f"This is branch {place} of {count}"
            raise PagedChatError(f"{which}.", "^G asks again, Alt+Up edits the last prompt; both make one.")
        self._desk_of(chat).go_through(chat, there)
        self.refresh_view()

    def action_go_to_sibling(self, step: int) -> None:
        """To the branch before or behind this one."""
        with self.saying():
            self.go_to_sibling(self.focused_chat, step)

    def promote(self, chat: ChatSession) -> None:
        """Close the chats that answer the same prompt otherwise; their replies stay in the tree.

        Raises:
            PagedChatError: a reply is being written, or there are none.
        """
        self._check_idle(chat)
        rivals = self._desk_of(chat).rivals(chat)
        if not rivals:
            raise PagedChatError("No other chat answers this prompt.", "/regen 3 makes three that do.")
        for rival in rivals:
            self.close_chat(rival)
        self._program.say(f"Closed {count(len(rivals), 'chat')}; what they say is in the tree (Alt+Down).")
        self.focus_chat(chat)

    async def on_tree_panel_chosen(self, message: "TreePanel.Chosen") -> None:
        """The active chat stands on another branch."""
        with self.saying():
            chat = self.focused_chat
            self._check_idle(chat)
            self._desk_of(chat).go_to(chat, message.turn_id)
        self.refresh_view()

    async def on_tree_panel_fork_wanted(self, message: "TreePanel.ForkWanted") -> None:
        """A new chat on another branch."""
        with self.saying():
            await self.fork_to(self.focused_chat, message.turn_id)

    def on_tree_panel_left(self, message: "TreePanel.Left") -> None:
        """The keyboard goes back."""
        self.to_the_chat()

    async def fork_to(self, source: ChatSession, turn_id: int) -> None:
        """A new chat that stands on a turn of the source's tree: on the reply, if it is a prompt."""
        child = self._desk_of(source).fork_to(source, turn_id)
        await self.add_pane(child, after=source)
        self.focus_chat(child)

    def _check_idle(self, chat: ChatSession) -> None:
        if chat.busy:
            raise PagedChatError("A reply is being written.", "/stop or Esc ends it.")

    async def action_toggle_tree(self) -> None:
        """Show the tree of the active chat's branches beside the chats, or put it away."""
        await self.toggle_tree()

    async def leave_chat(self, chat: ChatSession) -> None:
        """Drop a chat; asks first if something would be lost. Leaving the last one of two groups ends its engine,
        leaving the last one of all the program."""
        if len(self._groups.chats) == 1:
            await self._program.action_quit()
        elif len(self._desk_of(chat)) == 1:
            await self._program.close_model()
        elif chat.entries:
            question = f"Close {one_line(chat.label)}?"
            kept = "Its turns stay in the history (^S)" if self._program.keeps_chats else "Its turns are not kept"
            self.app.push_screen(
                ConfirmScreen(question, f"{kept}; its blocks are freed.", "close"),
                lambda sure: self.close_chat(chat) if sure else None,
            )
        else:
            self.close_chat(chat)

    async def action_close_chat(self) -> None:
        """Drop this chat."""
        await self.leave_chat(self.focused_chat)

    def close_chat(self, chat: ChatSession) -> None:
        """Drop a chat that is not the only one of its group."""
        desk = self._desk_of(chat)
        index = desk.chats.index(chat)
        pane = self._pane(chat.session_id)
        desk.close(chat)
        if pane is not None:
            pane.display = False
            pane.remove()
        if chat.session_id == self._focused_id:
            self.focus_chat(desk.chats[max(0, index - 1)])
        else:
            self.place_panes()
