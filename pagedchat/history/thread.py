"""The history on a thread of its own: whoever hands something over never waits for the disk.

What cannot be written now stays here, the newest state of every chat, and is tried again until it can be. Knows no
screen: what there is to say is taken by whoever shows it.
"""

import threading
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from pagedchat.chat.identity import new_id
from pagedchat.history.database import HistoryError, explained
from pagedchat.history.lasting import LastingHistory
from pagedchat.history.opened import OpenHistory
from pagedchat.history.place import lock_folder
from pagedchat.history.presence import Presence
from pagedchat.history.records import ChatRecord, LayoutRecord

RETRY_SECONDS = 2.0
CLOSE_SECONDS = 3.0
T = TypeVar("T")


class HistoryThread:
    """Takes what is to be kept, and answers questions, one after the other.

    Args:
        path: the history's file.
        retry_seconds: between two attempts to write what could not be written.
    """

    def __init__(self, path: Path, retry_seconds: float = RETRY_SECONDS) -> None:
        self.path = path
        self._retry_seconds = retry_seconds
        self._wake = threading.Condition()
        """Held for every look at what follows, but for what only the thread touches."""
        self._jobs: deque[tuple[Callable[[OpenHistory], Any], Future[Any]]] = deque()
        self._chats: dict[int, ChatRecord] = {}
        """Chats that wait to be written."""
        self._layout: LayoutRecord | None = None
        """Waits to be written."""
        self._known_chats: dict[int, ChatRecord] = {}
        """The last state of every chat that is open: all are written again where the file is lost."""
        self._known_layout: LayoutRecord | None = None
        self._news: list[str] = []
        self._closing = False
        self._retry_at = 0.0
        self.problem: HistoryError | None = None
        """Why what is new cannot be kept now; None while it can."""
        self._presence = Presence(lock_folder(path), new_id())
        self._history = LastingHistory(path, self._presence, self._say, self._write_all_again)
        self._thread = threading.Thread(target=self._run, name="history", daemon=True)

    # --- for everybody, at any time -----------------------------------------------------------------

    def start(self) -> None:
        """Open the history, there."""
        self._thread.start()

    def keep(self, record: ChatRecord) -> None:
        """This chat stands so now."""
        with self._wake:
            self._chats[record.chat_id] = self._known_chats[record.chat_id] = record
            self._wake.notify()

    def keep_layout(self, layout: LayoutRecord) -> None:
        """The screen stands so now."""
        with self._wake:
            self._layout = self._known_layout = layout
            self._wake.notify()

    def forget(self, chat_id: int) -> None:
        """This chat is closed: it is not written again where the file is lost."""
        with self._wake:
            self._known_chats.pop(chat_id, None)

    def ask(self, question: Callable[[OpenHistory], T]) -> "Future[T]":
        """The answer comes when all is written that was handed over before, as far as it can be.

        It may be a `HistoryError`, or another `PagedChatError` of the question's own.
        """
        future: Future[T] = Future()
        with self._wake:
            if self._closing:
                future.set_exception(HistoryError("broken", "The history is closed."))
            else:
                self._jobs.append((question, future))
                self._wake.notify()
        return future

    def take_news(self) -> list[str]:
        """Sentences for the screen, each once."""
        with self._wake:
            news, self._news = self._news, []
        return news

    @property
    def is_behind(self) -> bool:
        """Whether something waits to be written."""
        return bool(self._chats) or self._layout is not None

    def close(self, seconds: float = CLOSE_SECONDS) -> bool:
        """Write what waits and let go of the file; false if not all can be written, or not in so many seconds."""
        with self._wake:
            self._closing = True
            self._wake.notify()
        if self._thread.is_alive():
            self._thread.join(seconds)
        return not self._thread.is_alive() and not self.is_behind

    # --- on the thread ------------------------------------------------------------------------------

    def _run(self) -> None:
        self._attempt(_nothing)  # so that what is wrong is said at the start
        ending = False
        while not ending:
            with self._wake:
                self._wake.wait_for(self._has_work, self._retry_seconds if self.is_behind else None)
                ending = self._closing
            if self._may_write() or ending:
                self._write()
            self._answer()
        self._history.close()
        self._presence.leave()

    def _has_work(self) -> bool:
        return self._closing or bool(self._jobs) or (self.is_behind and self._may_write())

    def _may_write(self) -> bool:
        return self.problem is None or time.monotonic() >= self._retry_at

    def _write(self) -> None:
        """All that waits, or as much as can be written."""
        while self.is_behind:
            with self._wake:
                record, layout = next(iter(self._chats.values()), None), self._layout
            if record is not None:
                done = self._attempt(partial(_write_chat, record=record))
            else:
                done = self._attempt(partial(_write_layout, layout=layout))
            if not done:
                self._put_last(record)
                return
            self._written(record, layout)

    def _put_last(self, record: ChatRecord | None) -> None:
        """What cannot be written keeps nothing else from being written next time."""
        with self._wake:
            if record is not None and record.chat_id in self._chats:
                self._chats[record.chat_id] = self._chats.pop(record.chat_id)

    def _written(self, record: ChatRecord | None, layout: LayoutRecord | None) -> None:
        """Off the list, unless it has changed meanwhile."""
        with self._wake:
            if record is None:
                self._layout = None if self._layout is layout else self._layout
            elif self._chats.get(record.chat_id) is record:
                del self._chats[record.chat_id]

    def _attempt(self, work: Callable[[OpenHistory], None]) -> bool:
        """Write something. What goes wrong is said once, and that it goes again."""
        try:
            self._history.use(work, writes=True)
        except Exception as caught:  # a defect in here must not end the thread, unheard
            error = explained(caught, self.path)
            if self.problem is None or self.problem.trouble != error.trouble:
                self._say(str(error))
            self.problem, self._retry_at = error, time.monotonic() + self._retry_seconds
            return False
        if self.problem is not None:
            self.problem = None
            self._say("The history is written again; nothing of this run was lost.")
        return True

    def _answer(self) -> None:
        while self._jobs:
            question, future = self._jobs.popleft()
            if future.set_running_or_notify_cancel():
                try:
                    future.set_result(self._history.use(question, writes=False))
                except BaseException as error:
                    future.set_exception(error)

    def _write_all_again(self) -> None:
        """A new file knows nothing of this run."""
        with self._wake:
            self._chats = self._known_chats | self._chats
            self._layout = self._known_layout

    def _say(self, sentence: str) -> None:
        with self._wake:
            self._news.append(sentence)


def _nothing(history: OpenHistory) -> None:
    """To have it opened is all."""


def _write_chat(history: OpenHistory, record: ChatRecord) -> None:
    history.store.write(record)


def _write_layout(history: OpenHistory, layout: LayoutRecord | None) -> None:
    if layout is not None:
        history.windows.write(layout)
