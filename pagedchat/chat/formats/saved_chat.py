"""A chat as it is written into files and read from them: plain values. Knows no format and no screen."""

import re
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Any

from pagedchat.bounds import is_unicode
from pagedchat.chat.sanitize import one_line, shown_safely
from pagedchat.chat.session import ChatSession
from pagedchat.chat.turns import Entry, Turn
from pagedchat.errors import PagedChatError

MOST_TITLE = 200
_SURROGATE = re.compile("[\ud800-\udfff]")
_NO_PROMPT = "(The chat begins with a reply.)"


class FormatError(PagedChatError):
    """A file that holds no chat which can be read, or cannot be written."""


@dataclass(frozen=True, slots=True)
class SavedChat:
    """What is kept of a chat. Turns of user and assistant alternate, the first is the user's, the last a reply."""

    title: str = ""
    system: str | None = None
    sampling: dict[str, Any] = field(default_factory=dict)
    """Fields of `SamplingOverrides` that were set."""
    entries: tuple[Entry, ...] = ()
    unanswered: str = ""
    """A last prompt without a reply."""
    num_left_out: int = 0
    """Messages of the file that are no text of a user or a model: tools, pictures."""

    def last(self, num_turns: int) -> "SavedChat":
        """Only so many turns from the end."""
        return replace(self, entries=self.entries[-num_turns:])


def saved(session: ChatSession) -> SavedChat:
    """A chat as it stands; a reply that is being written counts up to here."""
    entries = list(session.entries)
    if session.open_text:
        entries.append(Entry(Turn("assistant", session.open_text), "stopped"))
    return SavedChat(session.name, session.system, session.overrides.set_values(), tuple(entries))


def in_turns(
    title: str,
    messages: Iterable[tuple[str, str]],
    *,
    sampling: dict[str, Any] | None = None,
    num_left_out: int = 0,
) -> SavedChat:
    """A chat from messages of role and text in their order, made to alternate.

    Texts of one speaker that follow each other become one; those of systems become the system prompt.
    """
    system: list[str] = []
    turns: list[tuple[str, str]] = []
    for role, text in messages:
        whole = whole_characters(text)
        if role == "system":
            system.append(whole)
        elif turns and turns[-1][0] == role:
            turns[-1] = (role, f"{turns[-1][1]}\n\n{whole}")
        elif turns or role == "user":
            turns.append((role, whole))
        else:
            turns += [("user", _NO_PROMPT), (role, whole)]
    unanswered = turns.pop()[1] if turns and turns[-1][0] == "user" else ""
    entries = tuple(Entry(Turn("user" if role == "user" else "assistant", text)) for role, text in turns)
    return SavedChat(
        title_of(title),
        "\n\n".join(filter(None, system)) or None,
        sampling or {},
        entries,
        unanswered,
        num_left_out,
    )


def title_of(text: object) -> str:
    """A title in one line, and not endless; what must not be drawn of a foreign one is spelled out."""
    return one_line(shown_safely(text))[:MOST_TITLE] if isinstance(text, str) else ""


def whole_characters(text: str) -> str:
    """Halves of characters, as broken files have them, cannot go to an engine."""
    return text if is_unicode(text) else _SURROGATE.sub("\ufffd", text)
