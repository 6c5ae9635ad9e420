"""How long the history takes to be opened, listed and searched when it has grown large.

In a folder of its own; no screen and no engine. Words are drawn by how often people use them, a few all the time.
"""

import random
import statistics
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from pagedchat.chat.identity import new_id
from pagedchat.chat.session import ChatSession
from pagedchat.history.opened import OpenHistory
from pagedchat.history.place import FILE_NAME, lock_folder
from pagedchat.history.presence import Presence
from pagedchat.history.sessions import record_of

NUM_TURNS = 6
_NUM_WORDS = 5000
_PROMPT_WORDS, _REPLY_WORDS = 12, 80
_REPEATS = 7


@dataclass(frozen=True, slots=True, kw_only=True)
class HistoryResult:
    """Milliseconds, medians of a few runs; each opens the file anew."""

    num_chats: int
    megabytes: float
    open_ms: float
    """Opened, with everything that is tidied on that occasion."""
    list_ms: float
    """The chats that were changed last."""
    rare_ms: float
    """A search for a word that a few chats have."""
    common_ms: float
    """For one that most of them have."""
    plain_ms: float
    """For one in a script without spaces, by which every text is looked through."""
    write_ms: float
    """A chat of as many turns as the others, written into it."""


def measure_history(num_chats: int) -> HistoryResult:
    """Fill a history and look into it."""
    with tempfile.TemporaryDirectory(prefix="pagedchat-bench-") as name:
        path = Path(name) / FILE_NAME
        words = _Words()
        _fill(path, words, num_chats)
        runs = [_run(path, words) for _ in range(_REPEATS)]
        return HistoryResult(
            num_chats=num_chats,
            megabytes=round(path.stat().st_size / 1e6, 1),
            **{field: statistics.median(run[field] for run in runs) for field in runs[0]},
        )


class _Words:
    """Words by Zipf's law."""

    def __init__(self) -> None:
        self._random = random.Random(0)  # noqa: S311 - the same in every run
        letters = "abcdefghijklmnopqrstuvwxyz"
        self.all = ["".join(self._random.choices(letters, k=3 + index % 7)) for index in range(_NUM_WORDS)]
        self._weights = [1 / rank for rank in range(1, _NUM_WORDS + 1)]

    def text(self, num_words: int) -> str:
        return " ".join(self._random.choices(self.all, self._weights, k=num_words))

    def chat(self) -> ChatSession:
        session = ChatSession(1, name=self.text(2))
        for number in range(NUM_TURNS // 2):
            session.ask(self.text(_PROMPT_WORDS), number + 1)
            session.append(self.text(_REPLY_WORDS), _REPLY_WORDS)
            session.finish("stop")
        return session


def _fill(path: Path, words: _Words, num_chats: int) -> None:
    history = _open(path)
    history.database.connection.execute("PRAGMA synchronous = OFF")  # filling it is not what is measured
    for _ in range(num_chats):
        history.store.write(record_of(words.chat(), "", "bench"))
    _close(history)


def _run(path: Path, words: _Words) -> dict[str, float]:
    began = time.perf_counter()
    history = _open(path)
    opened = _since(began)
    record = record_of(words.chat(), "", "bench")
    figures = {
        "open_ms": opened,
        "list_ms": _timed(history.search.chats),
        "rare_ms": _timed(lambda: history.search.chats(words.all[-1])),
        "common_ms": _timed(lambda: history.search.chats(words.all[0])),
        "plain_ms": _timed(lambda: history.search.chats("\u6d77")),
        "write_ms": _timed(lambda: history.store.write(record)),
    }
    _close(history)
    return figures


def _timed(work: Callable[[], object]) -> float:
    began = time.perf_counter()
    work()
    return _since(began)


def _since(began: float) -> float:
    return (time.perf_counter() - began) * 1e3


def _open(path: Path) -> OpenHistory:
    return OpenHistory(path, Presence(lock_folder(path), new_id()))


def _close(history: OpenHistory) -> None:
    history.database.close()
    history.presence.leave()
