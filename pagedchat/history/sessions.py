"""A chat as a record of the history, and back. Knows no database.

What was being written when its program ended is a reply that was interrupted. A prompt that nobody answered goes
back to be edited: nothing is sent by itself.
"""

from contextlib import suppress
from dataclasses import replace

import msgspec

from pagedchat.chat.session import ChatSession, ForkOrigin, Notice, WhenFull
from pagedchat.chat.tree import ROOT
from pagedchat.chat.turns import Entry
from pagedchat.engine.sampling_params import SamplingOverrides
from pagedchat.errors import PagedChatError
from pagedchat.history.records import ChatRecord


def record_of(session: ChatSession, draft: str, model: str) -> ChatRecord:
    """The chat as it stands now.

    Args:
        session: the chat.
        draft: what is written in its composer and not sent, prompts that go back there included.
        model: which one answers it.
    """
    return ChatRecord(
        session.chat_id,
        session.tree_id,
        session.name,
        turns=tuple(session.entries),
        open_turn_id=session.open_turn_id if session.open_text else 0,
        open_text=session.open_text,
        queue=tuple(session.queue),
        draft=draft,
        system=session.system,
        settings=_settings_of(session),
        model=model,
        origin=session.origin,
    )


def session_of(record: ChatRecord, session_id: int) -> ChatSession:
    """A chat of this number that goes on where the record ends."""
    session = ChatSession(session_id, name=record.title, overrides=_settings(record.settings), system=record.system)
    session.chat_id, session.tree_id = record.chat_id, record.tree_id
    session.origin = record.origin
    session.queue.extend(record.queue)
    if record.draft:
        session.return_prompt(record.draft)
    session.entries = list(alternating(record.turns))
    _set_context(session, record.settings)
    for entry, parent in record.branches:
        if parent == ROOT or parent in session.tree:
            session.tree.add(entry, parent)
    session.tree.add_path(session.entries)
    for prompt in _unanswered(session):
        session.return_prompt(prompt)
    if session.entries and session.entries[-1].ending in ("stopped", "interrupted"):
        session.state = "stopped" if session.entries[-1].ending == "stopped" else "interrupted"
    if notice := _notice(session):
        session.notify(notice)
    return session


def forked(record: ChatRecord, chat_id: int, label: str) -> ChatRecord:
    """The same turns as a chat of its own, for where another program has the first one open."""
    prompts = sum(entry.turn.role == "user" for entry in record.turns)
    origin = ForkOrigin(0, label, len(record.turns), prompts, record.chat_id)
    return replace(record, chat_id=chat_id, origin=origin, draft="", queue=())


def alternating(turns: tuple[Entry, ...]) -> list[Entry]:
    """As far as user and assistant take turns, which every template wants."""
    kept: list[Entry] = []
    for entry in turns:
        expected = "user" if len(kept) % 2 == 0 else "assistant"
        if entry.turn.role != expected:
            break
        kept.append(entry)
    return kept


def _unanswered(session: ChatSession) -> list[str]:
    """Takes the last prompt off, if it has no reply."""
    if not session.entries or session.entries[-1].turn.role != "user":
        return []
    return [session.entries.pop().turn.text]


class _Context(msgspec.Struct, frozen=True, omit_defaults=True):
    """What becomes of a full context, beside the sampling in the same JSON."""

    when_full: WhenFull = "stop"
    num_left_out: int = 0


def _settings_of(session: ChatSession) -> str:
    context = _Context(session.when_full, session.num_left_out)
    both = msgspec.to_builtins(session.overrides) | msgspec.to_builtins(context)
    return msgspec.json.encode(both).decode()


def _set_context(session: ChatSession, settings: str) -> None:
    """Turns that the model was not sent any more are left out again: it could not take them."""
    with suppress(msgspec.MsgspecError, ValueError):
        context = msgspec.json.decode(settings, type=_Context)
        session.when_full = context.when_full
        session.num_left_out = min(max(0, context.num_left_out), len(session.entries)) // 2 * 2


def _settings(text: str) -> SamplingOverrides:
    """Those that another version does not know, or would not allow, are passed over."""
    with suppress(msgspec.MsgspecError, PagedChatError, ValueError):
        return msgspec.json.decode(text, type=SamplingOverrides)
    return SamplingOverrides()


def _notice(session: ChatSession) -> Notice | None:
    """What is to be known before the next prompt."""
    said = []
    if session.entries:
        said.append(
            "Reopened: its next prompt computes these turns anew, but for a beginning that the cache has by then."
        )
    if waiting := len(session.queue):
        prompts = "A prompt waits" if waiting == 1 else f"{waiting} prompts wait"
        said.append(f"{prompts} from last time, to be sent before your next one; ↑ takes back the last.")
    return Notice(" ".join(said), error=False) if said else None
