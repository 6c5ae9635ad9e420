"""How a command line is told from a prompt, how its words are read, and what is raised where they are wrong."""

from pathlib import Path

from pagedchat.bounds import shown
from pagedchat.errors import PagedChatError


class CommandError(PagedChatError):
    """A command cannot be carried out; nothing was changed."""


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


def whole_number(text: str, what: str, usage: str, *, low: int, high: int) -> int:
    """A number from `low` to `high`.

    Raises:
        CommandError: it is none, or outside.
    """
    try:
        number = int(text)
    except ValueError:
        raise CommandError(f"{what} must be a whole number, not {shown(text)}.", f"Type {usage}") from None
    if not low <= number <= high:
        raise CommandError(f"{what} must be from {low} to {high}, not {shown(number)}.", f"Type {usage}")
    return number


def no_argument(text: str, usage: str) -> None:
    """Check that nothing was typed after the name.

    Raises:
        CommandError: something was.
    """
    if text:
        raise CommandError(f"{usage} takes no argument.", f"Type {usage} alone.")


def file_path(name: str, usage: str) -> Path:
    """A file by its name, with or without quotes around it; `~` is the home folder.

    Raises:
        CommandError: there is no such home folder.
    """
    if len(name) > 1 and name[0] == name[-1] and name[0] in "\"'":
        name = name[1:-1]
    try:
        return Path(name).expanduser()
    except RuntimeError:  # that of an unknown user
        raise CommandError("There is no home folder of that name.", f"Type {usage}") from None
