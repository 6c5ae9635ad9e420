"""What a slash command is, and what it is given: the program as far as commands may touch it, and a chat.

Knows no single command.
"""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from pagedchat.bounds import shown
from pagedchat.chat.session import ChatSession, Notice
from pagedchat.tui.commands.program import Chats, Program
from pagedchat.tui.commands.syntax import CommandError
from pagedchat.tui.engine_controls import EngineControls
from pagedchat.tui.engine_group import EngineGroup
from pagedchat.view.chats.desk import ChatDesk
from pagedchat.view.engine_view import EngineView


@dataclass(frozen=True, slots=True)
class CommandContext:
    """Where a command was given."""

    program: Program
    chat: ChatSession

    @property
    def chats(self) -> Chats:
        """The chats on the screen."""
        return self.program.chats

    @property
    def group(self) -> EngineGroup:
        """The engine that answers the chat, and all its chats."""
        return self.program.groups.of(self.chat)

    @property
    def every_chat(self) -> list[ChatSession]:
        """Of both groups, where there are two."""
        return self.program.groups.chats

    @property
    def desk(self) -> ChatDesk:
        """The chats of the same engine."""
        return self.group.desk

    @property
    def view(self) -> EngineView:
        """What is known of the engine."""
        return self.group.view

    @property
    def engine(self) -> EngineControls:
        """What can be asked of it."""
        return self.group.engine

    def say(self, message: str) -> None:
        """One short sentence that goes away by itself."""
        self.program.say(message)

    def tell(self, message: str) -> None:
        """Some lines in the chat's own pane, until the next prompt or Esc."""
        self.chat.notify(Notice(message, error=False))

    def block_id(self, text: str, usage: str) -> int:
        """The number of a block of the pool.

        Raises:
            CommandError: it is no number, or there is no such block.
        """
        last = self.engine.live().info.num_blocks - 1
        if not text.isascii() or not text.isdigit():
            raise CommandError(f"A block is named by its number, not by {shown(text)}.", f"Type {usage}")
        number = text.lstrip("0") or "0"
        if len(number) > len(str(last)) or int(number) > last:
            raise CommandError(f"There is no block {number:.20}: the pool has blocks 0 to {last}.")
        return int(number)

    def chat_number(self, text: str, usage: str) -> ChatSession:
        """The chat of this number.

        Raises:
            CommandError: there is none.
        """
        chat = next((chat for chat in self.every_chat if str(chat.session_id) == text), None)
        if chat is None:
            numbers = ", ".join(str(chat.session_id) for chat in self.every_chat)
            raise CommandError(f"There is no chat {shown(text)}; there are {numbers}.", f"Type {usage}")
        return chat


CommandFunction = Callable[[CommandContext, str], Awaitable[None] | None]
"""Gets what was typed after the name, without blanks around it."""


@dataclass(frozen=True, slots=True)
class SlashCommand:
    """One thing that is asked for by name in a composer."""

    name: str
    arguments: str
    """As the help writes them: `N|off`, `[name]`; empty if it takes none."""
    help: str
    run: CommandFunction
    aliases: tuple[str, ...] = ()
    choices: tuple[str, ...] = ()
    """What the first argument may be, where that is a short list."""
    title: str = ""
    """Its name in the command palette; empty where an action of the same meaning stands there already."""

    @property
    def usage(self) -> str:
        """As it is typed: `/limit N|off`."""
        return f"/{self.name} {self.arguments}".rstrip()

    @property
    def needs_argument(self) -> bool:
        """Whether it means nothing by its name alone."""
        return bool(self.arguments) and not self.arguments.startswith("[")
