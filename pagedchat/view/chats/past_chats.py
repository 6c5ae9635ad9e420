"""A list of past chats as rows of text. Knows records of the history and widths; draws nothing."""

import time
from typing import NamedTuple

from pagedchat.chat.sanitize import one_line
from pagedchat.history.records import FoundChat, FoundChats
from pagedchat.view.sentences.words import count, fit

_MINUTE, _HOUR, _DAY = 60, 3600, 86_400
_NUMBER_CELLS = 6
_MOST_FACTS = 0.6
"""Of the width; a title has the rest."""


class PastChatRow(NamedTuple):
    """Two lines about a chat."""

    number: str
    title: str
    facts: str
    passage: str


def past_chat_row(chat: FoundChat, width: int, *, open_here: bool, now: float) -> PastChatRow:
    """The lines, each part as wide as it is drawn."""
    parts = [count(chat.num_turns, "turn"), how_long_ago(chat.changed, now)]
    if open_here:
        parts.insert(0, "open here")
    elif chat.open_in is not None:
        parts.insert(0, f"open in process {chat.open_in}")
    if chat.model:
        parts.append(one_line(chat.model))
    facts = " · ".join(parts)
    room = max(0, width - _NUMBER_CELLS)
    facts = fit(facts, min(len(facts), int(room * _MOST_FACTS)))
    return PastChatRow(
        f"{chat.number:>{_NUMBER_CELLS - 2}}  ",
        fit(name_of(chat), max(0, room - len(facts) - 2)),
        f"  {facts}",
        fit(one_line(chat.passage or chat.opening), room),
    )


def name_of(chat: FoundChat) -> str:
    """What a chat without a name is called by."""
    return one_line(chat.title) or one_line(chat.opening) or "new chat"


def how_long_ago(then: float, now: float) -> str:
    """In one unit; from a week on the date, and so where the clock has been set back."""
    seconds = now - then
    if 0 <= seconds < _MINUTE:
        return "just now"
    if _MINUTE <= seconds < _HOUR:
        return f"{seconds // _MINUTE:.0f} min ago"
    if _HOUR <= seconds < _DAY:
        return f"{seconds // _HOUR:.0f} h ago"
    if _DAY <= seconds < 7 * _DAY:
        return f"{count(int(seconds // _DAY), 'day')} ago"
    try:
        return time.strftime("%Y-%m-%d", time.localtime(then))
    except (OverflowError, ValueError, OSError):  # no time at all
        return "some time"


def how_many(found: FoundChats, words: str) -> str:
    """What the list is of."""
    if not found.num_all:
        return "No chat is kept yet."
    if words.strip():
        return f"{len(found.chats)} of {count(found.num_all, 'chat')} found"
    shown = len(found.chats)
    more = f"; the last {shown} are listed, a search finds the others" if shown < found.num_all else ""
    return f"{count(found.num_all, 'chat')} kept{more}"
