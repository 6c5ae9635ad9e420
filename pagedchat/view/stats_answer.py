"""What a running program tells whoever asks for its figures: the live engine and the chats, as plain values.

They are those of the last step report, as everything on the screen is. What the user looks at (a past step, another
panel) has no part in it.
"""

import os
import time
from collections.abc import Callable, Sequence
from typing import Any

from pagedchat import __version__
from pagedchat.chat.session import ChatSession
from pagedchat.metrics.stats import NO_FIGURES, engine_figures, step_figures
from pagedchat.view.chats.desk import ChatDesk
from pagedchat.view.chats.standing import standing
from pagedchat.view.engine_view import EngineView
from pagedchat.view.state.engine import EngineState


class StatsAnswer:
    """Calling it makes the answer.

    Args:
        view: the engine.
        desk: the chats.
        model: says what was asked for, until the engine says what it found.
        metrics_url: where Prometheus can ask; empty if nowhere.
        started: when the program was, by `time.monotonic`; now, if nothing is said.
    """

    def __init__(
        self,
        view: EngineView,
        desk: ChatDesk,
        model: Callable[[], str],
        metrics_url: str = "",
        started: float | None = None,
    ) -> None:
        self._view = view
        self._desk = desk
        self._model = model
        self._metrics_url = metrics_url
        self._started = time.monotonic() if started is None else started

    def __call__(self) -> dict[str, Any]:
        """One object, made of what JSON has."""
        live = self._view.live
        return {
            "version": __version__,
            "pid": os.getpid(),
            "model": self._view.info.model if self._view.info else self._model(),
            "server": self._view.server.server.url if self._view.server else None,
            "uptime": round(time.monotonic() - self._started, 3),
            "state": self._state(),
            "engine": engine_figures(live.info) if live else None,
            "limit": self._view.limit,
            **_figures(live),
            "chats": [_chat(chat, self._view.present) for chat in self._desk],
            "metrics_url": self._metrics_url,
        }

    def _state(self) -> str:
        if self._view.server is not None:
            return "running" if self._desk.num_busy else "idle"
        if self._view.live is None:
            return "failed" if self._view.failure else "loading"
        if self._view.paused:
            return "paused"
        if self._view.live.running:
            return "running"
        return "waiting" if self._view.live.busy else "idle"


def answer_of_all(answers: Sequence[StatsAnswer]) -> dict[str, Any]:
    """That of the first engine or server, and in it, as `beside`, that of the next one; null if there is none."""
    first, *others = answers
    return first() | {"beside": answer_of_all(others) if others else None}


def _figures(now: EngineState | None) -> dict[str, Any]:
    """Pool, queues, counters and rates; null while there is no engine."""
    return (
        NO_FIGURES
        if now is None
        else step_figures(now.info, now.mirror.last, now.tokens_per_second, now.last_batch)
    )


def _chat(chat: ChatSession, now: EngineState) -> dict[str, Any]:
    sequence = now.mirror.sequences.get(chat.session_id)
    own, shared = now.blocks_of(chat.session_id)
    stands = standing(chat, now)
    return {
        "session_id": chat.session_id,
        "name": chat.name,
        "status": stands.state,
        "waits_because": stands.why,
        "queued_prompts": len(chat.queue),
        "tokens": len(sequence.token_ids) if sequence else 0,
        "blocks_own": own,
        "blocks_shared": shared,
        "tokens_per_second": round(now.sequence_rate(chat.session_id), 2),
    }
