"""What a command may reach: the chat it was typed in, the desk, the engine's view, the screen."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

from pagedchat.chat.session import ChatSession, Notice
from pagedchat.service.commands import AnyCommand
from pagedchat.tui.commands.slash_command import CommandError
from pagedchat.view.chats.desk import ChatDesk
from pagedchat.view.engine_view import EngineView
from pagedchat.view.state.engine import EngineState

if TYPE_CHECKING:
    from pagedchat.tui.app import PagedChatApp
    from pagedchat.tui.chat.screen import ChatScreen


@dataclass(frozen=True, slots=True)
class CommandContext:
    """Where a command was given."""

    app: "PagedChatApp"
    screen: "ChatScreen"
    chat: ChatSession

    @property
    def desk(self) -> ChatDesk:
        """All chats."""
        return self.app.desk

    @property
    def view(self) -> EngineView:
        """What is known of the engine."""
        return self.app.view

    def send(self, command: AnyCommand) -> None:
        """Ask the engine; a command that concerns the whole engine is answered by an `EngineNotice`."""
        self.app.send(command)

    def say(self, message: str) -> None:
        """One short sentence that goes away by itself."""
        self.screen.say(message)

    def tell(self, message: str) -> None:
        """Some lines in the chat's own pane, until the next prompt or Esc."""
        self.chat.notify(Notice(message, error=False))

    def live(self) -> EngineState:
        """The engine as it is now, whatever moment the inspector shows.

        Raises:
            CommandError: there is no engine to ask.
        """
        if self.view.live is None:
            raise CommandError("The engine is not running.", "Wait until it is ready.")
        return self.view.live

    def block_id(self, text: str, usage: str) -> int:
        """The number of a block of the pool.

        Raises:
            CommandError: it is no number, or there is no such block.
        """
        last = self.live().info.num_blocks - 1
        if not text.isascii() or not text.isdigit():
            raise CommandError(f"A block is named by its number, not by {text!r}.", f"Type {usage}")
        if int(text) > last:
            raise CommandError(f"There is no block {int(text)}: the pool has blocks 0 to {last}.")
        return int(text)

    def chat_number(self, text: str, usage: str) -> ChatSession:
        """The chat of this number.

        Raises:
            CommandError: there is none.
        """
        chat = self.desk.get(int(text)) if text.isascii() and text.isdigit() else None
        if chat is None:
            numbers = ", ".join(str(chat.session_id) for chat in self.desk)
            raise CommandError(f"There is no chat {text!r}; there are {numbers}.", f"Type {usage}")
        return chat
