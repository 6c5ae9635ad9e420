"""How long replies wait, prefill and decode, read off the step reports by the engine's own clock."""

from dataclasses import dataclass, replace

from pagedchat.cache_events import (
    CacheEvent,
    SequenceClosed,
    SequenceExtended,
    SequenceForked,
    SequenceParked,
    SequenceScheduled,
)
from pagedchat.events import StepReport
from pagedchat.step_batch import Batch, DecodeBatch


@dataclass(slots=True)
class _Marks:
    """Moments in the life of a reply; None for what has not come yet."""

    asked: float
    scheduled: float | None = None
    first_token: float | None = None
    last_token: float | None = None


@dataclass(frozen=True, slots=True)
class PhaseTimes:
    """Seconds that a finished reply spent in each phase."""

    queued: float
    prefill: float
    decode: float

    @property
    def inference(self) -> float:
        """All but the waiting."""
        return self.prefill + self.decode


class PhaseClock:
    """Follows every reply from `SequenceExtended` to `SequenceParked`.

    A report costs O(its events and its batch), whatever was before; as long as the same sequences decode together
    and nothing else happens to one of them, only O(its events): all have had their last tokens at the same time.
    """

    def __init__(self) -> None:
        self._marks: dict[int, _Marks] = {}
        self._together: list[int] | None = None
        """Sequences that all had a token in the last report, as its batch has them; that time is noted once."""
        self._num_together = 0
        """Of these, replies that are followed."""
        self._time = 0.0
        """Of their last tokens."""
        self._ended: set[int] = set()
        """Replies that end with the report being folded: the last token of such a one is in its batch."""
        self.gaps: dict[float, int] = {}
        """Of the last report: seconds between two tokens of one sequence -> how often."""
        self.finished: list[PhaseTimes] = []
        """Of the last report: replies that ended and had at least one token."""

    def fold(self, report: StepReport) -> None:
        """Take in the next report; `gaps` and `finished` are then those of this one."""
        self.gaps, self.finished = {}, []
        for event in report.events:
            self._fold_event(event, report)
        if report.batch:
            self._fold_batch(report.batch, report.time)
        if self._ended:
            self._part()
        for seq_id in self._ended:
            self._end(seq_id)
        self._ended.clear()

    def _fold_batch(self, batch: Batch, now: float) -> None:
        if type(batch) is DecodeBatch and batch.seq_ids is self._together:
            if self._num_together:
                self.gaps[now - self._time] = self._num_together
            self._time = now
            return
        self._part()
        marks = [self._marks[seq_id] for seq_id in _sampled(batch) if seq_id in self._marks]
        for each in marks:
            self._mark_token(each, now)
        if type(batch) is DecodeBatch:
            self._together, self._num_together, self._time = batch.seq_ids, len(marks), now

    def _part(self) -> None:
        """Those that were together go on each for itself."""
        if self._together is not None:
            for seq_id in self._together:
                if (marks := self._marks.get(seq_id)) is not None:
                    marks.last_token = self._time
            self._together = None

    def _fold_event(self, event: CacheEvent, report: StepReport) -> None:
        match event:
            case SequenceExtended(seq_id=seq_id):
                self._part()
                if seq_id in self._ended:  # stopped and asked again between two steps
                    self._ended.discard(seq_id)
                    self._end(seq_id)
                self._marks[seq_id] = _Marks(report.time)
            case SequenceForked(seq_id=seq_id, child_id=child_id) if seq_id in self._marks:
                self._part()
                self._marks[child_id] = replace(self._marks[seq_id])
            case SequenceScheduled(seq_id=seq_id) if seq_id in self._marks:
                _mark_scheduled(self._marks[seq_id], report)
            case SequenceParked(seq_id=seq_id) | SequenceClosed(seq_id=seq_id):
                self._part()
                self._ended.add(seq_id)

    def _mark_token(self, marks: _Marks, now: float) -> None:
        if marks.last_token is None:
            marks.first_token = now
        else:
            gap = now - marks.last_token
            self.gaps[gap] = self.gaps.get(gap, 0) + 1
        marks.last_token = now

    def _end(self, seq_id: int) -> None:
        marks = self._marks.pop(seq_id, None)
        if marks is None or marks.scheduled is None or marks.first_token is None or marks.last_token is None:
            return
        queued, prefill = marks.scheduled - marks.asked, marks.first_token - marks.scheduled
        self.finished.append(PhaseTimes(queued, prefill, marks.last_token - marks.first_token))


def _sampled(batch: Batch) -> list[int]:
    """Sequences that got tokens."""
    if type(batch) is DecodeBatch:
        return batch.seq_ids
    return [entry.seq_id for entry in batch if entry.token_ids]


def _mark_scheduled(marks: _Marks, report: StepReport) -> None:
    """A sequence that was preempted is scheduled again; its waiting ended with the first time."""
    if marks.scheduled is None:
        marks.scheduled = max(marks.asked, report.time - report.timings.total)
