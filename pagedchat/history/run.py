"""The history in one run of the program: where what is new goes, and what was brought back from earlier runs.

Knows no screen. What cannot be brought back is said, and the run begins without it.
"""

from collections.abc import Callable, Iterable
from concurrent.futures import TimeoutError as FutureTimeoutError
from pathlib import Path

import msgspec

from pagedchat.chat.session import ChatSession
from pagedchat.errors import InvalidValueError, PagedChatError
from pagedchat.history.opened import OpenHistory
from pagedchat.history.place import default_path
from pagedchat.history.records import LayoutRecord, PaneRecord
from pagedchat.history.sessions import session_of
from pagedchat.history.store import Trees
from pagedchat.history.thread import HistoryThread

MOST_PANES = 100
PATIENCE = 5.0
"""Seconds that the start waits for what is to be reopened."""


class Reopened(msgspec.Struct, frozen=True):
    """Chats of an earlier run."""

    layout: LayoutRecord = msgspec.field(default_factory=LayoutRecord)
    """Its panes are those that are to be shown, without chats that are gone."""
    sessions: tuple[ChatSession, ...] = ()
    """The chats of those panes that are not empty, by their numbers."""
    said: tuple[str, ...] = ()
    """What there is to say about them."""

    @property
    def unchanged(self) -> list[ChatSession]:
        """The chats that are in the history as they are; the others are forks of those that another program has."""
        kept = {pane.chat_id for pane in self.layout.panes}
        return [session for session in self.sessions if session.chat_id in kept]


class RunHistory(msgspec.Struct, frozen=True):
    """What a run has of the history."""

    thread: HistoryThread
    """Already at work."""
    reopened: Reopened = msgspec.field(default_factory=Reopened)


def begin(*, go_on: bool = False, number: int | None = None, path: Path | None = None) -> RunHistory:
    """Start to keep what is new, with the chats of last time or the one of this number where that is asked for.

    Raises:
        InvalidValueError: there is no chat of this number.
    """
    thread = HistoryThread(path or default_path())
    thread.start()
    if number is not None:
        return RunHistory(thread, _asked(thread, lambda history: reopen_chat(history, number)))
    return RunHistory(thread, _asked(thread, reopen_last) if go_on else Reopened())


def begin_attached(path: Path | None = None) -> RunHistory:
    """Start to keep what is new, with the chats of last time, where there were some: a terminal that attaches to a
    server goes on with what it had there."""
    history = begin(go_on=True, path=path)
    return history if history.reopened.sessions else RunHistory(history.thread)


def _asked(thread: HistoryThread, question: Callable[[OpenHistory], Reopened]) -> Reopened:
    try:
        return thread.ask(question).result(PATIENCE)
    except InvalidValueError:
        thread.close()
        raise
    except FutureTimeoutError:
        return Reopened(said=("The history does not answer: nothing is reopened.",))
    except PagedChatError as error:
        known = thread.problem is not None and thread.problem.message == error.message
        return Reopened() if known else Reopened(said=(str(error),))


def reopen_last(history: OpenHistory) -> Reopened:
    """What was open when the program was used last, as it stood.

    Raises:
        PagedChatError: nothing was, or another program has it.
    """
    layout = history.last_layout()
    panes: list[PaneRecord] = []
    sessions: list[ChatSession] = []
    said: list[str] = []
    trees: Trees = {}
    for pane in _once_each(layout.panes):
        found = None if pane.chat_id is None else history.chat(pane.chat_id, trees)
        if found is not None:
            record, about = found
            sessions.append(session_of(record, pane.number))
            said += [about] if about else []
        if found is not None or pane.chat_id is None:
            panes.append(pane)
    set_origins(sessions)
    share_trees(sessions)
    return Reopened(msgspec.structs.replace(layout, panes=tuple(panes)), tuple(sessions), tuple(said))


def _once_each(panes: Iterable[PaneRecord]) -> list[PaneRecord]:
    """Of what somebody else may have written: no two of a number, no chat twice."""
    kept: list[PaneRecord] = []
    for pane in panes:
        twice = any(pane.number == other.number or pane.chat_id == other.chat_id is not None for other in kept)
        if pane.number > 0 and not twice:
            kept.append(pane)
    return kept[:MOST_PANES]


def reopen_chat(history: OpenHistory, number: int) -> Reopened:
    """One chat, by the number that lists show.

    Raises:
        InvalidValueError: there is none.
    """
    chat_id = history.store.chat_of_number(number)
    found = None if chat_id is None else history.chat(chat_id)
    if found is None:
        raise InvalidValueError(f"There is no chat {number} in the history.", "^S in the program lists them all.")
    record, about = found
    layout = LayoutRecord((PaneRecord(1, chat_id),), 1)
    return Reopened(layout, (session_of(record, 1),), (about,) if about else ())


def share_trees(sessions: Iterable[ChatSession], others: Iterable[ChatSession] = ()) -> None:
    """Chats of one conversation have one tree, those that are open already among them."""
    trees = {session.tree_id: session.tree for session in others}
    for session in sessions:
        tree = trees.setdefault(session.tree_id, session.tree)
        if tree is not session.tree:
            tree.take_over(session.tree)
            session.tree = tree


def set_origins(sessions: Iterable[ChatSession], others: Iterable[ChatSession] = ()) -> None:
    """Forks know their sources by the numbers that these have now; 0 where a source is not open."""
    sessions = list(sessions)
    numbers = {session.chat_id: session.session_id for session in [*others, *sessions]}
    for session in sessions:
        if session.origin is not None:
            number = numbers.get(session.origin.chat_id, 0)
            session.origin = msgspec.structs.replace(session.origin, session_id=number)
