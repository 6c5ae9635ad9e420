"""What becomes of a chat whose context is nearly full: how full it will be, what is left out, what is summed up.

Tokens of a text that nobody has tokenised are estimated from the chat's own: only the engine knows them. Pure.
"""

from collections.abc import Iterable

from pagedchat.chat.sanitize import one_line
from pagedchat.chat.session import ChatSession
from pagedchat.chat.turns import Entry, Turn
from pagedchat.view.sentences.words import count

WARN_FROM = 0.85
"""Of the context: from there on the foot line says what is to come."""
_MOST_ROOM = 256
_KEPT = 0.6
"""Of the context, after turns were left out: so that the next prompts find their beginning in the cache again."""


def room_for_reply(limit: int) -> int:
    """Tokens that a reply should have."""
    return min(_MOST_ROOM, limit // 8)


def estimated_tokens(chat: ChatSession, texts: Iterable[str]) -> int:
    """What these texts take, as far as this chat's tokens tell."""
    return round(sum(map(len, texts)) * chat.tokens_per_character)


def is_nearly_full(chat: ChatSession, prompt: str, limit: int) -> bool:
    """Whether a reply to this prompt would have too little room."""
    texts = [turn.text for turn in chat.turns] + [prompt]
    return bool(limit) and estimated_tokens(chat, texts) > limit - room_for_reply(limit)


def turns_to_leave_out(chat: ChatSession, prompt: str, limit: int) -> int:
    """How many of the oldest turns go, in pairs, until there is room again; none where that would not help.

    There is to be room for some time, but not at the price of the last pair that fits.
    """
    room = limit - room_for_reply(limit)
    sizes = {
        first - chat.num_left_out: _size_from(chat, first, prompt)
        for first in range(chat.num_left_out, len(chat.entries) + 1, 2)
    }
    most = max(sizes, default=0)
    roomy = [num for num, size in sizes.items() if size <= _KEPT * limit and num < most]
    fitting = [num for num, size in sizes.items() if size <= room]
    return min(roomy or fitting, default=0)


def _size_from(chat: ChatSession, first: int, prompt: str) -> int:
    kept = [entry.turn.text for entry in chat.entries[first:]]
    return estimated_tokens(chat, [chat.system or "", *kept, prompt])


def turns_to_sum_up(chat: ChatSession, question: str, limit: int) -> list[Entry]:
    """The newest turns, in pairs, that leave room for the summary."""
    entries = chat.entries[chat.num_left_out :]
    room = limit - 2 * room_for_reply(limit)
    while entries:
        texts = [entry.turn.text for entry in entries]
        if estimated_tokens(chat, [chat.system or "", *texts, question]) <= room:
            break
        entries = entries[2:]
    return entries


def summary_question(chat: ChatSession) -> str:
    """What the model is asked, in the new chat, of the turns of the old one."""
    return (
        f'The context of the chat "{one_line(chat.label)}" is nearly full, and this one goes on with it. '
        "Sum up in a few sentences what was said there: the names, the numbers, what was asked and what was found."
    )


def request_for_summary(chat: ChatSession, question: str, limit: int) -> tuple[list[Turn], int]:
    """The turns to be sent before the question, and how many of the chat's did not fit."""
    entries = turns_to_sum_up(chat, question, limit)
    system = [Turn("system", chat.system)] if chat.system else []
    return [*system, *(entry.turn for entry in entries)], len(chat.entries) - len(entries)


def warning(chat: ChatSession, used: int, limit: int) -> str:
    """What is to come, before it happens; empty while there is room."""
    if not limit or used < WARN_FROM * limit:
        return ""
    left = max(0, limit - used)
    then = {
        "stop": "then the reply ends (/set full drop or summary)",
        "drop": "the oldest turns will be left out",
        "summary": "a new chat will go on with a summary",
    }[chat.when_full]
    return f"context {used:,} of {limit:,}, {count(left, 'token')} left: {then}"
