"""The batching timeline's data: one column a step, one mark a sequence. Folded as reports come, drawn elsewhere."""

from collections import deque
from dataclasses import dataclass, field

from pagedchat.engine.mirror import CacheMirror
from pagedchat.events import (
    BatchEntry,
    SequenceClosed,
    SequenceForked,
    SequencePreempted,
    SequenceRewound,
    StepReport,
)

MAX_COLUMNS = 512
"""More than any terminal is wide."""

PREFILL, LAST_PREFILL, DECODE, FORK, WAITING = "P", "p", "•", "f", "w"
PREEMPTED, RECOMPUTE, SWAPPED, PAUSE = "✕", "r", "s", "‖"
MARK_MEANINGS = (
    (PREFILL, "prefill"), (LAST_PREFILL, "its last part"), (DECODE, "decode"), (FORK, "fork"), (WAITING, "waiting"),
    (PREEMPTED, "preempted"), (RECOMPUTE, "recomputed"), (SWAPPED, "swapped"), (PAUSE, "paused"),
)  # fmt: skip
"""Every mark and its meaning, in the order of a legend."""


@dataclass(slots=True)
class StepColumn:
    """One step, or one moment at which the scheduler was paused."""

    step: int
    marks: dict[int, str] = field(default_factory=dict)
    """Sequence -> its mark; a sequence with nothing to tell has none."""
    num_tokens: int = 0
    """Tokens whose KV the step computed."""
    num_available: int = 0
    """Blocks free or cached after the step."""
    seconds: float = 0.0
    """How long the step took, all phases together."""
    paused: bool = False
    report: StepReport | None = None
    """The step itself; none for a pause, or a fork before the first step."""


class StepColumns:
    """The last steps, oldest first."""

    def __init__(self) -> None:
        self.columns: deque[StepColumn] = deque(maxlen=MAX_COLUMNS)
        self.num_columns = 0
        """Columns made so far, those forgotten included."""
        self._computed_once: dict[int, int] = {}
        """Sequence -> leading tokens that it had computed when it was last preempted."""

    def pause(self) -> None:
        """The scheduler was paused after the last step."""
        last = self.columns[-1] if self.columns else StepColumn(0)
        if not last.paused:
            self._append(StepColumn(last.step, {}, 0, last.num_available, paused=True))

    def add(self, report: StepReport, mirror: CacheMirror) -> None:
        """Take in a report that `mirror` has just folded."""
        preempted = self._take_in(report)
        if not report.batch and not preempted:
            return
        available, seconds = report.pool.free + report.pool.cached, report.timings.total
        column = StepColumn(report.step, num_available=available, seconds=seconds, report=report)
        for sequence in mirror.sequences.values():
            if sequence.status == "waiting":
                column.marks[sequence.seq_id] = WAITING
            elif sequence.status == "swapped":
                column.marks[sequence.seq_id] = SWAPPED
        for entry in report.batch:
            column.num_tokens += entry.num_prefill + entry.num_decode
            known = mirror.sequences.get(entry.seq_id)
            column.marks[entry.seq_id] = self._mark(entry, known.num_computed if known else 0)
        for seq_id in preempted:
            column.marks[seq_id] = PREEMPTED
        self._append(column)

    def _append(self, column: StepColumn) -> None:
        self.columns.append(column)
        self.num_columns += 1

    def _take_in(self, report: StepReport) -> list[int]:
        """Note forks and losses; the sequences that were preempted."""
        preempted = []
        for event in report.events:
            match event:
                case SequenceForked(seq_id=seq_id, child_id=child_id):
                    self._mark_fork(child_id, report)
                    self._computed_once[child_id] = self._computed_once.get(seq_id, 0)
                case SequencePreempted(seq_id=seq_id, num_tokens=num_tokens):
                    preempted.append(seq_id)
                    self._computed_once[seq_id] = max(num_tokens, self._computed_once.get(seq_id, 0))
                case SequenceRewound(seq_id=seq_id, length=length) if seq_id in self._computed_once:
                    self._computed_once[seq_id] = min(length, self._computed_once[seq_id])
                case SequenceClosed(seq_id=seq_id):
                    self._computed_once.pop(seq_id, None)
        return preempted

    def _mark_fork(self, child_id: int, report: StepReport) -> None:
        """A fork comes before the child's first step: it is marked in the column before, where the child is not."""
        if not self.columns:
            self._append(StepColumn(report.step, num_available=report.pool.free + report.pool.cached))
        self.columns[-1].marks[child_id] = FORK

    def _mark(self, entry: BatchEntry, num_computed: int) -> str:
        if not entry.num_prefill:
            return DECODE
        if num_computed - entry.num_prefill < self._computed_once.get(entry.seq_id, 0):
            return RECOMPUTE
        return LAST_PREFILL if entry.token_ids else PREFILL
