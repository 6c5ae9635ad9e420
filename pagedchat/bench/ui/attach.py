"""From `pagedchat --attach` to a screen with all of its chats: a server, a history with long chats, a terminal.

Everything lies in a folder of its own. Knows the history's place by the variable that says it.
"""

import os
import statistics
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from pagedchat.bench.bytecode import kept_bytecode
from pagedchat.bench.serve.clients import ServerProcess
from pagedchat.bench.ui.terminal import Terminal
from pagedchat.chat.identity import new_id
from pagedchat.chat.session import ChatSession
from pagedchat.config import DEFAULT_MODEL
from pagedchat.history.opened import OpenHistory
from pagedchat.history.place import FILE_NAME, lock_folder
from pagedchat.history.presence import Presence
from pagedchat.history.records import LayoutRecord, PaneRecord
from pagedchat.history.sessions import record_of
from pagedchat.own_process import environment
from pagedchat.view.sentences.glyphs import CORNER

NUM_CHATS, NUM_MESSAGES = 8, 200
_WORDS = "The tide comes in twice a day, and goes out as often. "
_LAST = "lastwordof{}"
"""Of each chat: what the screen has to show."""
_REPEATS = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class AttachResult:
    """Milliseconds from the start of the process, medians."""

    first_frame_ms: float
    """The first that has a pane."""
    all_text_ms: float
    """Every chat's last words are drawn."""
    attached_ms: float
    """The server's engine is named: the chats can be gone on with."""


def measure_attach() -> AttachResult:
    """Start a server and attach to it, several times.

    Raises:
        PagedChatError: one of the programs ended, or drew not what it should.
    """
    with tempfile.TemporaryDirectory(prefix="pagedchat-bench-") as name, ServerProcess([]) as server:
        _fill(Path(name) / "data" / "pagedchat" / FILE_NAME)
        variables = {f"XDG_{kind}_HOME": f"{name}/{kind.lower()}" for kind in ("DATA", "STATE", "CONFIG", "CACHE")}
        variables |= kept_bytecode(Path(name) / "bytecode")
        command = [sys.executable, "-m", "pagedchat", "--attach", f"{server.host}:{server.port}"]
        runs = [_time_once(command, variables) for _ in range(1 + _REPEATS)][1:]  # the first one fills caches
    medians = [1e3 * statistics.median(times) for times in zip(*runs, strict=True)]
    return AttachResult(first_frame_ms=medians[0], all_text_ms=medians[1], attached_ms=medians[2])


def _time_once(command: Sequence[str], variables: dict[str, str]) -> tuple[float, float, float]:
    wanted = [_LAST.format(number) for number in range(1, NUM_CHATS + 1)]
    began = time.perf_counter()
    with Terminal(command, {**os.environ, **environment(), **variables}) as terminal:
        seen = terminal.wait_for_all([CORNER, DEFAULT_MODEL, *wanted])
    corner, attached, *texts = [when - began for when in seen]
    return corner, max(texts), attached


def _fill(path: Path) -> None:
    path.parent.mkdir(parents=True)
    history = OpenHistory(path, Presence(lock_folder(path), new_id()))
    panes = []
    for number in range(1, NUM_CHATS + 1):
        chat = _chat(number)
        history.store.write(record_of(chat, "", "bench"))
        panes.append(PaneRecord(number, chat.chat_id))
    history.windows.write(LayoutRecord(tuple(panes), 1))
    history.database.close()
    history.presence.leave()


def _chat(number: int) -> ChatSession:
    chat = ChatSession(number, name=f"chat {number}")
    for turn in range(NUM_MESSAGES // 2):
        chat.ask(_WORDS, turn + 1)
        chat.append(8 * _WORDS, 100)
        chat.finish("stop")
    chat.ask(_LAST.format(number), NUM_MESSAGES)
    chat.append(_LAST.format(number), 3)
    chat.finish("stop")
    return chat
