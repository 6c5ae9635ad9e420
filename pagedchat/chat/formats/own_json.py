"""Our own JSON: all of a chat, so that what was written is read again as it was."""

from typing import Any

from pagedchat.bounds import shown
from pagedchat.chat.formats.saved_chat import FormatError, SavedChat, in_turns, whole_characters
from pagedchat.chat.sanitize import terminal_json
from pagedchat.chat.turns import Entry, Turn
from pagedchat.engine.sampling_params import SamplingOverrides
from pagedchat.errors import InvalidValueError

NAME = "pagedchat chat"
VERSION = 1
_ENDINGS = ("complete", "stopped", "interrupted", "length")


def to_json(chat: SavedChat) -> str:
    """Everything, with what a terminal could obey escaped."""
    turns = [
        {"role": entry.turn.role, "text": entry.turn.text}
        | ({} if entry.ending == "complete" else {"ending": entry.ending})
        for entry in chat.entries
    ]
    if chat.unanswered:
        turns.append({"role": "user", "text": chat.unanswered})
    value = {
        "format": NAME, "version": VERSION, "title": chat.title, "system": chat.system, "sampling": chat.sampling,
        "turns": turns,
    }  # fmt: skip
    return terminal_json(value, indent=2) + "\n"


def is_own(value: Any) -> bool:
    """Whether a file says that it is ours."""
    return isinstance(value, dict) and value.get("format") == NAME


def from_json(value: dict[str, Any]) -> SavedChat:
    """A chat of a file of ours.

    Raises:
        FormatError: it is not as we write it.
    """
    version = value.get("version")
    if version != VERSION:
        raise FormatError(f"Its version is {shown(version)}; this pagedchat reads version {VERSION}.",
                          "A newer pagedchat may read it.")  # fmt: skip
    turns = value.get("turns")
    if not isinstance(turns, list):
        raise FormatError("It has no list of turns.")
    entries = [_entry(turn, number) for number, turn in enumerate(turns, 1)]
    title, system = value.get("title", ""), value.get("system")
    if not isinstance(title, str) or not isinstance(system, str | None):
        raise FormatError("Its title and its system prompt must be texts.")
    system = whole_characters(system) if system is not None else None
    sampling = _sampling(value.get("sampling", {}))
    alternating = all(entry.turn.role == ("user", "assistant")[index % 2] for index, entry in enumerate(entries))
    if not alternating:  # written by another hand
        made = in_turns(title, [(entry.turn.role, entry.turn.text) for entry in entries], sampling=sampling)
        return SavedChat(made.title, system, sampling, made.entries, made.unanswered)
    unanswered = entries.pop().turn.text if len(entries) % 2 else ""
    return SavedChat(whole_characters(title), system, sampling, tuple(entries), unanswered)


def _entry(turn: Any, number: int) -> Entry:
    match turn:
        case {"role": "user" | "assistant" as role, "text": str(text)}:
            ending = turn.get("ending", "complete")
            if ending in _ENDINGS:
                return Entry(Turn(role, whole_characters(text)), ending)
    raise FormatError(f"Turn {number} is not one with a role, a text and an ending that are known.")


def _sampling(values: Any) -> dict[str, Any]:
    if not isinstance(values, dict) or not values.keys() <= set(SamplingOverrides.__struct_fields__):
        raise FormatError("Its sampling has settings that nobody knows.")
    try:
        return SamplingOverrides(**values).set_values()
    except InvalidValueError as error:
        raise FormatError(f"Its sampling cannot be: {error.message}", error.hint) from None
