"""What a slash command is, and how one says that it was used wrongly. Knows no single command."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pagedchat.errors import PagedChatError

if TYPE_CHECKING:
    from pagedchat.tui.commands.context import CommandContext

Run = Callable[["CommandContext", str], Awaitable[None] | None]
"""Gets what was typed after the name, without blanks around it."""


class CommandError(PagedChatError):
    """A command cannot be carried out; nothing was changed."""


@dataclass(frozen=True, slots=True)
class SlashCommand:
    """One thing that is asked for by name in a composer."""

    name: str
    arguments: str
    """As the help writes them: `N|off`, `[name]`; empty if it takes none."""
    help: str
    run: Run
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
