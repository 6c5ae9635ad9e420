"""A chat whose reply went on at a server while its terminal was gone, and the server's account of it: made one.

The terminal's own history may end anywhere: before the prompt, in the middle of the reply, or behind it. Knows
neither the link nor the screen.
"""

from typing import Literal

from pagedchat.chat.session import ChatSession
from pagedchat.chat.turns import Entry, Turn
from pagedchat.events import ReplyKept

Outcome = Literal["resumed", "known", "apart"]
"""resumed: the reply goes on in the chat, and its request's events follow. known: the chat has it all, or has gone
on itself. apart: the chat is about something else by now."""


def resume(session: ChatSession, kept: ReplyKept) -> Outcome:
    """Bring a chat to where the server is with it."""
    if session.request_id == kept.request_id:  # a connection was lost, and nothing else
        session.hear_anew(begun_with(kept))
        return "resumed"
    asked = asked_entries(kept)
    if session.busy or not asked:
        return "known"
    said = session.entries[session.num_left_out :]
    begins = [entry.turn for entry in said[: len(asked)]] == asked
    if begins and len(said) > len(asked) + 1:
        return "known"
    if begins and len(said) == len(asked) + 1:
        return _go_on(session, kept, said[-1])
    if [entry.turn for entry in said] == asked[:-1] and not _is_in_tree(session, asked[-1], kept):
        session.take_up(_prompt(session, asked[-1]), kept.request_id)
        session.hear_anew(begun_with(kept))
        return "resumed"
    return "known" if kept.finished and _has_reply(session, kept) else "apart"


def fill(session: ChatSession, kept: ReplyKept) -> None:
    """A chat that is new gets what the server has of it."""
    asked = asked_entries(kept)
    session.chat_id = session.tree_id = kept.chat_id
    session.system = next((text for role, text in kept.turns if role == "system"), session.system)
    session.fill([Entry(turn) for turn in asked[:-1]])
    session.take_up(Entry(asked[-1]), kept.request_id)
    session.hear_anew(begun_with(kept))


def begun_with(kept: ReplyKept) -> str:
    """The beginning of a reply that the request was to go on with; empty where it answers a prompt."""
    return kept.turns[-1][1] if kept.turns and kept.turns[-1][0] == "assistant" else ""


def asked_entries(kept: ReplyKept) -> list[Turn]:
    """The turns that a request answers, the system's left out; none where they do not take turns and end with a
    prompt."""
    turns = kept.turns[:-1] if begun_with(kept) else kept.turns
    asked = [Turn(role, text) for role, text in turns if role in ("user", "assistant")]  # type: ignore[arg-type]
    expected = ["assistant" if place % 2 else "user" for place in range(len(asked))]
    sound = [turn.role for turn in asked] == expected and len(asked) % 2 == 1
    return asked if sound else []


def _go_on(session: ChatSession, kept: ReplyKept, reply: Entry) -> Outcome:
    """The chat has the prompt, and some reply to it."""
    begun = begun_with(kept)
    if begun and reply.turn.text == begun and session.go_on(kept.request_id):
        return "resumed"
    if reply.ending != "interrupted" or not _all_of(kept).startswith(reply.turn.text):
        return "known"
    session.go_on_with(reply, kept.request_id)
    session.hear_anew(begun)
    return "resumed"


def _all_of(kept: ReplyKept) -> str:
    return begun_with(kept) + kept.text


def _prompt(session: ChatSession, turn: Turn) -> Entry:
    """The prompt, by the number that the history has for it, if it has."""
    last = session.entries[-1].turn_id if session.entries else 0
    return next((entry for entry in session.tree.behind(last) if entry.turn == turn), None) or Entry(turn)


def _is_in_tree(session: ChatSession, prompt: Turn, kept: ReplyKept) -> bool:
    """Whether the chat has been there, and went back."""
    last = session.entries[-1].turn_id if session.entries else 0
    behind = [entry for entry in session.tree.behind(last) if entry.turn == prompt]
    replies = [reply for entry in behind for reply in session.tree.behind(entry.turn_id)]
    return kept.finished and any(reply.turn.text == _all_of(kept) for reply in replies)


def _has_reply(session: ChatSession, kept: ReplyKept) -> bool:
    return any(entry.turn == Turn("assistant", _all_of(kept)) for entry, _ in session.tree.all_turns())
