"""When requests of programs came to where they are: queued, in a batch, a first token. Knows no replies.

A step is told when it is over. So a request counts as scheduled when the step began that it was first part of, and
a token as there when its step was told.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Generic

from pagedchat.cache_events import SequenceScheduled
from pagedchat.engine.sequence import Sequence
from pagedchat.events import StepReport
from pagedchat.outputs import RequestStateStats
from pagedchat.requests.request import K, Request

Clock = Callable[[], float]


@dataclass(slots=True)
class Stages(Generic[K]):
    """Notes the times of all requests.

    Args:
        clock: seconds that never go back.
        wall_clock: seconds since 1970.
    """

    clock: Clock = time.monotonic
    wall_clock: Clock = time.time
    _waiting: dict[int, Request[K]] = field(default_factory=dict)
    """By their first sequences: those that were in no batch yet."""
    _computing: dict[int, tuple[Sequence, RequestStateStats]] = field(default_factory=dict)
    """Likewise: those whose prompts are being computed."""

    def queue(self, request: Request[K]) -> None:
        """It has its first sequence."""
        request.stats = RequestStateStats(arrival_time=self.wall_clock(), queued_ts=self.clock())
        self._waiting[request.first.reply.sequence.seq_id] = request

    def forget(self, request: Request[K]) -> None:
        """It has ended."""
        seq_id = request.first.reply.sequence.seq_id
        self._waiting.pop(seq_id, None)
        self._computing.pop(seq_id, None)

    def clear(self) -> None:
        """Forget all."""
        self._waiting.clear()
        self._computing.clear()

    def follow(self, report: StepReport) -> None:
        """Take in what a step brought."""
        if self._waiting:
            self._note_scheduled(report)
        if self._computing:
            self._note_first_tokens()

    def _note_scheduled(self, report: StepReport) -> None:
        for event in report.events:
            if type(event) is SequenceScheduled and event.seq_id in self._waiting:
                request = self._waiting.pop(event.seq_id)
                request.stats.scheduled_ts = max(request.stats.queued_ts, self.clock() - report.timings.total)
                self._computing[event.seq_id] = request.first.reply.sequence, request.stats

    def _note_first_tokens(self) -> None:
        for seq_id, (sequence, stats) in list(self._computing.items()):
            if len(sequence.token_ids) > sequence.num_prompt_tokens:
                stats.first_token_ts = self.clock()
                stats.first_token_latency = stats.first_token_ts - stats.queued_ts
                del self._computing[seq_id]
