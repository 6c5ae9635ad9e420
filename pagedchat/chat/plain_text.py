"""A chat as text to be copied: one reply, its code, or everything. Knows no screen."""

import re

from pagedchat.chat.session import ChatSession
from pagedchat.chat.turns import Turn

_FENCED = re.compile(
    r"^(?P<fence>```+|~~~+)[^\n]*\n(?P<code>.*?)(?:^(?P=fence)[ \t]*$|\Z)", re.MULTILINE | re.DOTALL
)
_SPEAKERS = {"user": "you", "assistant": "ai", "system": "system"}


def replies(session: ChatSession) -> list[str]:
    """All replies in order, the one being written included."""
    texts = [entry.turn.text for entry in session.entries if entry.turn.role == "assistant"]
    return [*texts, session.open_text] if session.open_text else texts


def code_blocks(text: str) -> list[str]:
    """What stands between Markdown's code fences; a fence that is still open counts up to the end."""
    return [match["code"].rstrip("\n") for match in _FENCED.finditer(text)]


def whole_chat(session: ChatSession) -> str:
    """Every turn under the name of its speaker, as Markdown."""
    turns = [entry.turn for entry in session.entries]
    if session.open_text:
        turns.append(Turn("assistant", session.open_text))
    return "\n\n".join(f"### {_SPEAKERS[turn.role]}\n\n{turn.text}" for turn in turns)
