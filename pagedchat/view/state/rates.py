"""Tokens per second over the last moments of the engine's own clock. Listens to the fold; knows no wall clock."""

from collections import deque
from copy import copy

import msgspec

from pagedchat.events import StepReport
from pagedchat.step_batch import Batch, DecodeBatch
from pagedchat.view.state.fold import Hears

WINDOW = 2.0
"""Seconds of report time that a rate is taken over."""


class _Share(msgspec.Struct):
    """One sequence's part in the window."""

    since: float
    """Beginning of its first step there, in report time."""
    num_parts: int = 0
    """Steps and runs that it had a part in."""
    num_tokens: int = 0
    """Of the steps that belong to no run."""


class _Run(msgspec.Struct):
    """Plain decodes of the same sequences, with no other decodes between them."""

    seq_ids: list[int]
    members: frozenset[int]
    num_steps: int = 0


class RateWindow:
    """Counts generated tokens of the steps that ended within `WINDOW` seconds of the last one.

    Running totals make a report cost O(its batch), whatever the window holds; one more plain decode of the same
    sequences costs the same however many they are.
    """

    def __init__(self) -> None:
        self._reports: deque[StepReport] = deque()
        self._shares: dict[int, _Share] = {}
        self._runs: deque[_Run] = deque()
        """Oldest first."""
        self._num_tokens = 0

    def hears(self) -> Hears:
        """No events: batches tell it all."""
        return {}

    def take(self, report: StepReport) -> None:
        """Count a report's batch; steps that sampled nothing (prefill) count by their time alone."""
        if not report.batch:
            return
        self._reports.append(report)
        if type(report.batch) is DecodeBatch:
            self._num_tokens += len(report.batch)
            self._run_of(report.batch, report).num_steps += 1
        else:
            self._count(report.batch, report)
        while self._reports[0].time < report.time - WINDOW:
            self._forget(self._reports.popleft())

    def _run_of(self, batch: DecodeBatch, report: StepReport) -> _Run:
        if not self._runs or self._runs[-1].seq_ids != batch.seq_ids:
            self._runs.append(_Run(batch.seq_ids, frozenset(batch.seq_ids)))
            for seq_id in batch.seq_ids:
                self._share(seq_id, report).num_parts += 1
        return self._runs[-1]

    def _count(self, batch: Batch, report: StepReport) -> None:
        for entry in batch:
            if count := len(entry.token_ids):
                share = self._share(entry.seq_id, report)
                share.num_parts += 1
                share.num_tokens += count
                self._num_tokens += count

    def _share(self, seq_id: int, report: StepReport) -> _Share:
        share = self._shares.get(seq_id)
        if share is None:
            share = self._shares[seq_id] = _Share(_start(report))
        return share

    def copy(self) -> "RateWindow":
        """The same window, to be moved on by itself."""
        twin = copy(self)
        twin._reports = self._reports.copy()
        twin._runs = deque(map(copy, self._runs))
        twin._shares = {seq_id: copy(share) for seq_id, share in self._shares.items()}
        return twin

    def rate(self) -> float:
        """Tokens per second of all sequences together."""
        return self._num_tokens / self._seconds_since(_start(self._reports[0])) if self._reports else 0.0

    def sequence_rate(self, seq_id: int) -> float:
        """Tokens per second of one sequence, from its first token in the window on."""
        share = self._shares.get(seq_id)
        if share is None:
            return 0.0
        num_tokens = share.num_tokens + sum(run.num_steps for run in self._runs if seq_id in run.members)
        return num_tokens / self._seconds_since(max(share.since, _start(self._reports[0])))

    def _seconds_since(self, start: float) -> float:
        return max(self._reports[-1].time - start, 1e-6)

    def _forget(self, report: StepReport) -> None:
        if type(report.batch) is DecodeBatch:
            self._num_tokens -= len(report.batch)
            oldest = self._runs[0]
            oldest.num_steps -= 1
            if not oldest.num_steps:
                self._runs.popleft()
                for seq_id in oldest.seq_ids:
                    self._lose_part(seq_id)
        else:
            self._discount(report.batch)

    def _discount(self, batch: Batch) -> None:
        for entry in batch:
            if count := len(entry.token_ids):
                self._shares[entry.seq_id].num_tokens -= count
                self._num_tokens -= count
                self._lose_part(entry.seq_id)

    def _lose_part(self, seq_id: int) -> None:
        share = self._shares[seq_id]
        share.num_parts -= 1
        if not share.num_parts:
            del self._shares[seq_id]


def _start(report: StepReport) -> float:
    return report.time - report.timings.total
