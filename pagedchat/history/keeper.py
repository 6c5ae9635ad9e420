"""Looks at the chats, and hands what has changed to the history's thread. Knows no screen, no desk and no disk.

A turn, a queued prompt, a name are handed over at once; a reply that grows and a draft that is being typed at most
once a second, which is half of what may be lost when the program is killed.
"""

import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import NamedTuple

from msgspec import structs

from pagedchat.chat.session import ChatSession
from pagedchat.history.records import ChatRecord, LayoutRecord, PaneRecord
from pagedchat.history.sessions import record_of
from pagedchat.history.thread import HistoryThread

GROWING_SECONDS = 1.0


class ChatPlace(NamedTuple):
    """A chat that is open."""

    chat: ChatSession
    model: str
    """Which one answers it."""
    beside: int = 0
    """How many groups stand on the left of its own."""


@dataclass(frozen=True, slots=True)
class _Seen:
    """What is known of a chat since it was handed over."""

    session: ChatSession
    version: int
    record: ChatRecord
    lasting: object
    """What is handed over at once when it changes."""
    time: float


class HistoryKeeper:
    """The listener of one run.

    Args:
        thread: where the history is.
        clock: seconds.
    """

    def __init__(self, thread: HistoryThread, clock: Callable[[], float] = time.monotonic) -> None:
        self._thread = thread
        self._clock = clock
        self._seen: dict[int, _Seen] = {}
        self._models: dict[int, str] = {}
        """Which one answered each chat when it was last looked at."""
        self._layout: LayoutRecord | None = None

    def know(self, sessions: Iterable[ChatSession]) -> None:
        """These come from the history as they are: they are written when they change."""
        for session in sessions:
            self._remember(session, record_of(session, session.returned, ""))

    def look(
        self,
        chats: Iterable[ChatPlace],
        drafts: Mapping[int, str],
        layout: LayoutRecord,
        *,
        all_of_it: bool = False,
    ) -> None:
        """Hand over what has changed since the last look.

        Args:
            chats: those that are open, in the order in which they are shown.
            drafts: what is being written in each, by its number on the screen.
            layout: how the screen stands; its panes are made here.
            all_of_it: do not wait with what grows.
        """
        kept = [place for place in chats if place.chat.kept]
        for place in kept:
            self._models[place.chat.chat_id] = place.model
            self._look_at(place.chat, drafts.get(place.chat.session_id, ""), place.model, all_of_it)
        self._let_closed_go({place.chat.chat_id for place in kept})
        stands = structs.replace(layout, panes=tuple(map(self._pane_of, kept)))
        if stands != self._layout:
            self._layout = stands
            self._thread.keep_layout(stands)

    def _look_at(self, chat: ChatSession, written: str, model: str, all_of_it: bool) -> None:
        draft = "\n\n".join(part for part in (chat.returned, written) if part)
        seen = self._seen.get(chat.chat_id)
        if seen is None:
            self._hand_over(chat, record_of(chat, draft, model))
        elif (chat.version, draft) != (seen.version, seen.record.draft):
            due = all_of_it or _lasting(chat) != seen.lasting or self._clock() >= seen.time + GROWING_SECONDS
            if due:
                self._hand_over(chat, record_of(chat, draft, model))

    def _hand_over(self, chat: ChatSession, record: ChatRecord) -> None:
        """If there is anything in it, and anything new."""
        seen = self._seen.get(chat.chat_id)
        if seen is None and record.is_empty:
            return
        self._remember(chat, record)
        if seen is None or replace(record, model=seen.record.model) != seen.record:
            self._thread.keep(record)

    def _let_closed_go(self, open_ids: set[int]) -> None:
        """A chat that was closed since is written once more, as it was left."""
        for chat_id in self._models.keys() - open_ids - self._seen.keys():
            del self._models[chat_id]
        for chat_id in self._seen.keys() - open_ids:
            seen, model = self._seen[chat_id], self._models.pop(chat_id, "")
            if seen.version != seen.session.version:
                self._hand_over(seen.session, record_of(seen.session, seen.record.draft, model))
            del self._seen[chat_id]
            self._thread.forget(chat_id)

    def _remember(self, chat: ChatSession, record: ChatRecord) -> None:
        self._seen[chat.chat_id] = _Seen(chat, chat.version, record, _lasting(chat), self._clock())

    def _pane_of(self, place: ChatPlace) -> PaneRecord:
        """An empty chat has a place, and nothing to keep."""
        chat = place.chat
        return PaneRecord(chat.session_id, chat.chat_id if chat.chat_id in self._seen else None, place.beside)


def _lasting(chat: ChatSession) -> object:
    """All of a chat but what grows from token to token and from key to key."""
    last = chat.entries[-1].turn_id if chat.entries else 0
    return (
        len(chat.entries),
        last,
        chat.request_id,
        tuple(chat.queue),
        chat.name,
        chat.system,
        chat.overrides,
        chat.when_full,
        chat.num_left_out,
    )
