"""What a slash command is, how its line is told from a prompt and read, and how one says that it was used wrongly.

Knows no single command.
"""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pagedchat.errors import PagedChatError

if TYPE_CHECKING:
    from pagedchat.tui.commands.context import CommandContext

CommandFunction = Callable[["CommandContext", str], Awaitable[None] | None]
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


def is_command(prompt: str) -> bool:
    """A single line that begins with one slash. Several lines are always a prompt: they were pasted."""
    return prompt.startswith("/") and not prompt.startswith("//") and "\n" not in prompt


def literal(prompt: str) -> str:
    """The prompt that is meant: of two slashes at the start of a single line, one only protects the other."""
    return prompt[1:] if prompt.startswith("//") and "\n" not in prompt else prompt


def split_line(line: str) -> tuple[str, str]:
    """`/name the rest` as `name` and `the rest`."""
    name, _, rest = line.removeprefix("/").partition(" ")
    return name.lower(), rest.strip()


def first_word(text: str) -> tuple[str, str]:
    """The first word, and what comes after it."""
    word, _, rest = text.partition(" ")
    return word, rest.strip()


def whole_number(text: str, what: str, usage: str, *, low: int, high: int | None = None) -> int:
    """A number from `low` to `high`.

    Raises:
        CommandError: it is none, or outside.
    """
    try:
        number = int(text)
    except ValueError:
        raise CommandError(f"{what} must be a whole number, not {text!r}.", f"Type {usage}") from None
    if number < low or (high is not None and number > high):
        allowed = f"at least {low}" if high is None else f"from {low} to {high}"
        raise CommandError(f"{what} must be {allowed}, not {number}.", f"Type {usage}")
    return number


def no_argument(text: str, usage: str) -> None:
    """Check that nothing was typed after the name.

    Raises:
        CommandError: something was.
    """
    if text:
        raise CommandError(f"{usage} takes no argument.", f"Type {usage} alone.")
