"""A chat as Markdown: what was said is Markdown already, and stays as it is."""

import re

from pagedchat.chat.formats.saved_chat import SavedChat
from pagedchat.chat.formats.written_out import written_out
from pagedchat.chat.sanitize import one_line

SPEAKERS = {"user": "You", "assistant": "Assistant", "system": "System"}
ENDINGS = {"complete": "", "stopped": "stopped", "interrupted": "interrupted", "length": "ended at its limit"}
_SPECIAL = re.compile(r"([\\`*_{}\[\]<>#|~!&])")


def to_markdown(chat: SavedChat) -> str:
    """A heading for the chat and one for every turn."""
    parts = [f"# {_plain(chat.title or 'Chat')}"]
    if chat.system:
        parts += ["## System", written_out(chat.system)]
    for entry in chat.entries:
        ending = ENDINGS[entry.ending]
        parts += [
            f"## {SPEAKERS[entry.turn.role]}{f' ({ending})' if ending else ''}",
            _closed(written_out(entry.turn.text)),
        ]
    return "\n\n".join(part.rstrip("\n") for part in parts) + "\n"


def _plain(text: str) -> str:
    return _SPECIAL.sub(r"\\\1", one_line(text))


def _closed(text: str) -> str:
    """A code fence that is open at the end would take the next turns into it."""
    fence = ""
    for line in text.split("\n"):
        found = re.match(r" {0,3}(`{3,}|~{3,})", line)
        if not fence:
            fence = found[1] if found else ""
        elif found and found[1].startswith(fence) and not line.strip().strip(fence[0]):
            fence = ""
    return f"{text}\n{fence}" if fence else text
