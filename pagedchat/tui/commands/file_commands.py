"""Commands about files: a chat written into one, and read from one."""

import asyncio
import re
from pathlib import Path

from pagedchat.chat.formats.files import FileExistsAlreadyError, read_chats, write_chat
from pagedchat.chat.formats.saved_chat import SavedChat, saved
from pagedchat.chat.sanitize import one_line
from pagedchat.chat.writing.prompt_templates import MissingVariablesError, filled, template_names
from pagedchat.settings.places import templates_path
from pagedchat.tui.commands.slash_command import CommandContext, SlashCommand
from pagedchat.tui.commands.syntax import CommandError, file_path, whole_number
from pagedchat.units import format_size
from pagedchat.view.sentences.words import count

MOST_CHARACTERS = 10_000_000
"""Of a chat that is imported; no model's context is near it."""
_EXPORT = "/export FILE.md|json|html|svg [last N]"
_IMPORT = "/import FILE [n]"


def _export(context: CommandContext, argument: str) -> None:
    found = re.fullmatch(r"(.*?)(?:\s+last\s+(\S+))?", argument, re.DOTALL)
    name, last = (found[1], found[2]) if found else (argument, None)
    chat = saved(context.chat)
    if not chat.entries:
        raise CommandError("There is nothing to export yet.", "Send a prompt first.")
    if last is not None:
        chat = chat.last(whole_number(last, "The number of turns", _EXPORT, low=1, high=len(chat.entries)))
    path = file_path(name, _EXPORT)
    try:
        _write(context, path, chat, overwrite=False)
    except FileExistsAlreadyError:
        context.program.confirm(
            f"Overwrite {one_line(path.name)}?",
            "There is a file of that name; what is in it would be gone.",
            "overwrite",
            lambda: _write(context, path, chat, overwrite=True),
        )


def _write(context: CommandContext, path: Path, chat: SavedChat, *, overwrite: bool) -> None:
    num_bytes = write_chat(path, chat, overwrite=overwrite)
    context.say(f"Wrote {count(len(chat.entries), 'turn')}, {format_size(num_bytes)}, to {path}.")


async def _import(context: CommandContext, argument: str) -> None:
    path, which = _file_and_number(argument)
    chats = await asyncio.to_thread(read_chats, path)
    if which is None and len(chats) > 1:
        titles = [f"{number}. {chat.title or '(no title)'}" for number, chat in enumerate(chats, 1)]
        title = f"{count(len(chats), 'chat')} in {one_line(path.name)}"
        context.program.choose(title, titles, lambda index: _open(context, chats[index]))
        return
    number = whole_number(which or "1", "The number of the chat", _IMPORT, low=1, high=len(chats))
    await _open(context, chats[number - 1])


async def _open(context: CommandContext, chat: SavedChat) -> None:
    size = sum(len(entry.turn.text) for entry in chat.entries) + len(chat.unanswered)
    if size > MOST_CHARACTERS:
        raise CommandError(f"The chat has {size:,} characters; {MOST_CHARACTERS:,} can be shown.")
    await context.chats.open_saved(chat)
    left_out = f", {count(chat.num_left_out, 'message')} of other kinds left out" if chat.num_left_out else ""
    waiting = " The last prompt has no reply yet: it is in the composer." if chat.unanswered else ""
    context.say(f"Imported {count(len(chat.entries), 'turn')}{left_out}.{waiting}")


def _file_and_number(argument: str) -> tuple[Path, str | None]:
    """A name may have blanks in it and a number at its end: a file that is there is meant."""
    name, _, last = argument.rpartition(" ")
    whole = file_path(argument, _IMPORT)
    if name and last.isdecimal() and not _is_there(whole):
        return file_path(name.strip(), _IMPORT), last
    return whole, None


def _is_there(path: Path) -> bool:
    try:
        return path.exists()
    except (OSError, ValueError):
        return False


def _template(context: CommandContext, argument: str) -> None:
    folder = templates_path()
    if argument:
        context.chats.write(filled(folder, argument))
        return
    names = template_names(folder)
    if not names:
        context.tell(
            f"There are no templates yet: a text file in {folder} is one, with {{{{name}}}} for a variable."
        )
        return
    context.program.choose("Template", names, lambda index: _begin(context, folder, names[index]))


def _begin(context: CommandContext, folder: Path, name: str) -> None:
    """The prompt, or the command that it takes to fill the gaps."""
    try:
        context.chats.write(filled(folder, name))
    except MissingVariablesError as missing:
        context.chats.write(missing.line)


COMMANDS = (
    SlashCommand("export", "FILE [last N]", "This chat as .md, .json, .html or .svg", _export,
                 title="Export this chat"),
    SlashCommand("import", "FILE [n]", "A chat of pagedchat, ChatGPT or llama.cpp", _import, title="Import a chat"),
    SlashCommand("template", "[NAME a=b]", "A prompt of your templates, with its gaps filled", _template,
                 title="Prompt template"),
)  # fmt: skip
