"""What a server tells `pagedchat stats`: its engine, who uses it, and every sequence without a word of its text.

Knows the hub and its seats; no HTTP.
"""

import os
import time
from collections.abc import Callable
from typing import Any

from pagedchat import __version__
from pagedchat.cache_events import FIRST_OF_PROGRAMS
from pagedchat.events import SequenceFigures
from pagedchat.metrics.fold import MetricsFold
from pagedchat.metrics.stats import NO_FIGURES, engine_figures, step_figures
from pagedchat.server.admission import Admission
from pagedchat.server.attach import AttachServer
from pagedchat.server.engine import EngineState
from pagedchat.server.hub import EngineHub

_PATIENCE = 1.0
"""Seconds for the engine, which may be in the midst of a long step, to tell of its sequences; else they are left
out, and how many it has is told by its last report."""


class ServerStats:
    """Awaiting a call of it makes the answer, one object of what JSON has; fields as in `view.stats_answer`.

    Args:
        name: of the model, until the engine says what it found.
        state: whether there is an engine.
        figures: folded from the engine's reports.
        hub: who uses it.
        attach: terminals, and what is left of them.
        admission: requests.
    """

    def __init__(
        self,
        name: str,
        state: EngineState,
        figures: MetricsFold,
        hub: EngineHub,
        attach: AttachServer,
        admission: Admission,
    ) -> None:
        self._name = name
        self._state, self._figures = state, figures
        self._hub, self._attach, self._admission = hub, attach, admission
        self._started = time.monotonic()
        self.url = ""
        """Of the API, once it is known."""

    async def __call__(self) -> dict[str, Any]:
        """The answer, as of now."""
        told = await self._hub.sequences(_PATIENCE)
        info = self._state.info
        last, running = self._figures.last, self._is_running
        rate, batch = (self._figures.rate.rate(), self._figures.last_batch) if running else (0.0, 0)
        return {
            "version": __version__,
            "pid": os.getpid(),
            "model": info.model if info else self._name,
            "server": None,
            "uptime": round(time.monotonic() - self._started, 3),
            "state": self._word(),
            "engine": engine_figures(info) if info else None,
            "limit": self._hub.run_state.limit,
            **(step_figures(info, last, rate, batch) if info else NO_FIGURES),
            "chats": [_sequence(each, self._name_of) for each in told.sequences] if told else [],
            "chats_left_out": told.num_left_out if told else self._num_queued,
            "metrics_url": f"{self.url.removesuffix('/v1')}/metrics" if self.url else "",
            "serves": {
                "url": self.url,
                "requests": self._admission.num_inside,
                "terminals": self._attach.seats.num_attached,
                "left": len(self._attach.seats) - self._attach.seats.num_attached,
                "onlookers": self._attach.num_onlookers,
            },
            "beside": None,
        }

    def _word(self) -> str:
        if self._state.info is None:
            return "failed" if self._hub.has_failed else "loading"
        if self._hub.run_state.paused:
            return "paused"
        if self._is_running:
            return "running"
        last = self._figures.last
        return "waiting" if last is not None and (last.queues.waiting or last.queues.swapped) else "idle"

    @property
    def _is_running(self) -> bool:
        last = self._figures.last
        return bool(self._state.info and last and last.queues.running and not self._hub.run_state.paused)

    @property
    def _num_queued(self) -> int:
        """Sequences that run or wait, by the last report."""
        last = self._figures.last
        return 0 if last is None else last.queues.running + last.queues.waiting + last.queues.swapped

    def _name_of(self, seq_id: int) -> str:
        client = self._hub.numbers.owners.get(seq_id)  # the first one is the API itself
        if client is None:
            return "request"
        return f"terminal {client - 1}, chat {self._hub.numbers.own[client][seq_id]}"


def _sequence(seq: SequenceFigures, name_of: Callable[[int], str]) -> dict[str, Any]:
    of_a_program = seq.seq_id >= FIRST_OF_PROGRAMS
    return {
        "session_id": seq.seq_id - FIRST_OF_PROGRAMS + 1 if of_a_program else seq.seq_id,
        "name": name_of(seq.seq_id),
        "status": seq.status,
        "tokens": seq.num_tokens,
        "blocks_own": seq.blocks_own,
        "blocks_shared": seq.blocks_shared,
        "tokens_per_second": None,
    }
