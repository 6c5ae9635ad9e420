"""What is written in the chats' composers: prompts are sent, and slash commands carried out."""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from textual import on

from pagedchat.chat.prompt_history import PromptHistory
from pagedchat.chat.session import ChatSession, Notice
from pagedchat.errors import PagedChatError
from pagedchat.tui.chat.file_mentions import here
from pagedchat.tui.chat.pane_screen import PaneScreen
from pagedchat.tui.messages import PromptSubmitted
from pagedchat.view.options import UiOptions

if TYPE_CHECKING:
    from pagedchat.tui.commands.program import Program


class PromptScreen(PaneScreen):
    """Panes whose composers reach the chats and the program.

    Args:
        program: what commands that are given here may touch.
        options: what the command line said.
        history: prompts sent before.
    """

    def __init__(self, program: "Program", options: UiOptions, history: PromptHistory) -> None:
        super().__init__(program.groups, options, history)
        self._program = program

    @contextmanager
    def saying(self) -> Iterator[None]:
        """What a key cannot do is said, and no more comes of it."""
        try:
            yield
        except PagedChatError as error:
            self._program.say(str(error))

    @on(PromptSubmitted)
    async def _prompt_submitted(self, event: PromptSubmitted) -> None:
        chat = self._groups.get(event.session_id)
        if chat is None:
            return
        try:
            await self._submit(chat, event.prompt)
        except PagedChatError as error:
            chat.notify(Notice(error.message, error.hint))
            self._give_back(chat, event.prompt)
        self.refresh_view()

    async def _submit(self, chat: ChatSession, prompt: str) -> None:
        if prompt.startswith("/"):
            await self._submit_slashed(chat, prompt)
        else:
            await self._ask(chat, self._filled(prompt))

    async def _ask(self, chat: ChatSession, prompt: str) -> None:
        """In this chat; or, where it is full and that was chosen, in a new one that begins with a summary of it."""
        desk = self._desk_of(chat)
        if not desk.needs_successor(chat, prompt):
            desk.submit(chat, prompt)
            return
        successor = desk.succeed(chat, prompt)
        await self.add_pane(successor, after=chat)
        self.focus_chat(successor)

    def _filled(self, prompt: str) -> str:
        """The prompt with the files that it names, which is told.

        Raises:
            PagedChatError: one of them cannot be put in.
        """
        if "@" not in prompt:
            return prompt
        from pagedchat.chat.writing.prompt_files import with_files  # noqa: PLC0415 - not for the first frame

        filled = with_files(prompt, here())
        if filled.told:
            self._program.say(filled.told)
        return filled.text

    async def _submit_slashed(self, chat: ChatSession, prompt: str) -> None:
        from pagedchat.tui.commands.syntax import is_command  # noqa: PLC0415 - not for the first frame

        if is_command(prompt):
            await self.run_command(chat, prompt)
        else:
            self.send_to([chat], prompt)

    async def run_command(self, chat: ChatSession, line: str) -> None:
        """Carry out a slash command. One that cannot be is explained in the chat, and comes back to be mended."""
        from pagedchat.tui.commands.registry import run_line  # noqa: PLC0415 - as above
        from pagedchat.tui.commands.slash_command import CommandContext  # noqa: PLC0415 - as above

        if chat.notice is not None:
            chat.dismiss()
        try:
            await run_line(CommandContext(self._program, chat), line)
        except PagedChatError as error:
            chat.notify(Notice(error.message, error.hint))
            self._give_back(chat, line)

    def _give_back(self, chat: ChatSession, line: str) -> None:
        pane = self._pane(chat.session_id)
        if pane is not None and not pane.composer.text:
            pane.composer.put_before(line)

    def write(self, text: str) -> None:
        """Begin a line in the active chat's composer, if it is empty."""
        self._give_back(self.focused_chat, text)
        self._refocus()

    def filled(self, prompt: str) -> str:
        """A prompt as it is sent: with the files that it names, and without a slash that only protects another.

        Raises:
            PagedChatError: a file cannot be put in.
        """
        from pagedchat.tui.commands.syntax import literal  # noqa: PLC0415 - as above

        return self._filled(literal(prompt))

    def send_to(self, chats: Iterable[ChatSession], prompt: str) -> None:
        """One prompt to several chats, once to each; of two slashes before it, one only protects the other."""
        filled = self.filled(prompt)
        for chat in dict.fromkeys(chats):
            desk = self._desk_of(chat)
            if desk.needs_successor(chat, filled):
                self.call_later(self._ask, chat, filled)  # which makes a pane
            else:
                desk.submit(chat, filled)

    def action_broadcast(self) -> None:
        """Send what is written here to every chat, of both groups."""
        pane = self._pane(self._focused_id)
        if pane is None or not pane.composer.text.strip():
            self._program.say("Write a prompt first; this key sends it to every chat.")
            return
        prompt = pane.composer.take()
        try:
            self.send_to(self._groups.chats, prompt)
        except PagedChatError as error:
            pane.composer.put_before(prompt)
            self._program.say(str(error))
        self.refresh_view()
