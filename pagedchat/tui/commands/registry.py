"""All slash commands: found by name, completed while being typed, run."""

from difflib import get_close_matches
from inspect import isawaitable
from typing import NamedTuple

from pagedchat.tui.commands import (
    chat_commands,
    engine_commands,
    file_commands,
    program_commands,
    server_commands,
    setting_commands,
)
from pagedchat.tui.commands.slash_command import CommandContext, SlashCommand
from pagedchat.tui.commands.syntax import CommandError, is_command, split_line

GROUPS: dict[str, tuple[SlashCommand, ...]] = {
    "Chats": chat_commands.COMMANDS,
    "Files": file_commands.COMMANDS,
    "Settings": setting_commands.COMMANDS,
    "Engine": engine_commands.COMMANDS,
    "Servers": server_commands.COMMANDS,
    "Program": program_commands.COMMANDS,
}
"""As the help page shows them."""
COMMANDS = tuple(command for group in GROUPS.values() for command in group)
_BY_NAME = {name: command for command in COMMANDS for name in (command.name, *command.aliases)}


class Candidate(NamedTuple):
    """One way in which a line that is being typed may go on."""

    line: str
    """The line with it put in."""
    label: str
    help: str


def find(name: str) -> SlashCommand:
    """The command of this name.

    Raises:
        CommandError: there is none; the message names the nearest.
    """
    command = _BY_NAME.get(name)
    if command is None:
        near = get_close_matches(name, _BY_NAME, 1, 0.5)
        question = f" Did you mean /{near[0]}?" if near else ""
        raise CommandError(f"There is no /{name}.{question}", "/help lists all; // sends a slash to the model.")
    return command


async def run_line(context: CommandContext, line: str) -> None:
    """Carry out what was typed.

    Raises:
        PagedChatError: it cannot be; the message says why.
    """
    name, argument = split_line(line)
    command = find(name)
    if command.needs_argument and not argument:
        raise CommandError(f"/{command.name} needs an argument.", f"Type {command.usage}")
    result = command.run(context, argument)
    if isawaitable(result):
        await result


def candidates(line: str) -> list[Candidate]:
    """How the line may go on; of a complete name, how it is used."""
    if not is_command(line):
        return []
    name, space, rest = line.removeprefix("/").partition(" ")
    if not space:
        return [_named(known) for known in sorted(_BY_NAME) if known.startswith(name.lower())]
    command = _BY_NAME.get(name.lower())
    if command is None:
        return []
    chosen = [] if " " in rest else [choice for choice in command.choices if choice.startswith(rest)]
    if not chosen or (not rest and len(chosen) == 1):
        return [Candidate(line, command.usage, command.help)]
    return [Candidate(f"/{name} {choice} ", choice, command.usage) for choice in chosen]


def _named(name: str) -> Candidate:
    command = _BY_NAME[name]
    arguments = f" {command.arguments}" if command.arguments else ""
    return Candidate(f"/{name} " if arguments else f"/{name}", f"/{name}{arguments}", command.help)


def completed(line: str) -> str:
    """The line with all put in that its candidates have in common."""
    lines = [candidate.line for candidate in candidates(line)]
    if not lines:
        return line
    first, last = min(lines), max(lines)  # what these two have in common, all have
    num_common = next((i for i, (a, b) in enumerate(zip(first, last, strict=False)) if a != b), len(first))
    return max(line, first[:num_common], key=len)
