"""Tokens per second over the last moments of the engine's own clock. Listens to the fold; knows no wall clock."""

from collections import deque
from copy import copy
from dataclasses import dataclass

from pagedchat.events import StepReport
from pagedchat.view.state.fold import Hears

WINDOW = 2.0
"""Seconds of report time that a rate is taken over."""


@dataclass(slots=True)
class _Share:
    """One sequence's part in the window."""

    since: float
    """Beginning of its first step there, in report time."""
    num_steps: int = 0
    num_tokens: int = 0


class RateWindow:
    """Counts generated tokens of the steps that ended within `WINDOW` seconds of the last one.

    Running totals make a report cost O(its batch), whatever the window holds.
    """

    def __init__(self) -> None:
        self._reports: deque[StepReport] = deque()
        self._shares: dict[int, _Share] = {}
        self._num_tokens = 0

    def hears(self) -> Hears:
        """No events: batches tell it all."""
        return {}

    def take(self, report: StepReport) -> None:
        """Count a report's batch; steps that sampled nothing (prefill) count by their time alone."""
        if not report.batch:
            return
        self._reports.append(report)
        for entry in report.batch:
            if count := len(entry.token_ids):
                share = self._shares.get(entry.seq_id)
                if share is None:
                    share = self._shares[entry.seq_id] = _Share(_start(report))
                share.num_steps += 1
                share.num_tokens += count
                self._num_tokens += count
        while self._reports[0].time < report.time - WINDOW:
            self._forget(self._reports.popleft())

    def copy(self) -> "RateWindow":
        """The same window, to be moved on by itself."""
        twin = copy(self)
        twin._reports = self._reports.copy()
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
        return share.num_tokens / self._seconds_since(max(share.since, _start(self._reports[0])))

    def _seconds_since(self, start: float) -> float:
        return max(self._reports[-1].time - start, 1e-6)

    def _forget(self, report: StepReport) -> None:
        for entry in report.batch:
            if count := len(entry.token_ids):
                share = self._shares[entry.seq_id]
                share.num_steps -= 1
                share.num_tokens -= count
                self._num_tokens -= count
                if not share.num_steps:
                    del self._shares[entry.seq_id]


def _start(report: StepReport) -> float:
    return report.time - report.timings.total
