"""The batching timeline's data: one column a step, one mark a sequence. Listens to the fold; drawn elsewhere."""

from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Any

import msgspec

from pagedchat.cache_events import CacheEvent, ContentsLost, SequenceForked, SequencePreempted
from pagedchat.engine.mirror import CacheMirror
from pagedchat.events import StepReport
from pagedchat.step_batch import Batch, BatchEntry, DecodeBatch
from pagedchat.view.state.computed_once import ComputedOnce
from pagedchat.view.state.copying import with_own_containers
from pagedchat.view.state.fold import Hears

MAX_COLUMNS = 512
"""More than any terminal is wide."""

PREFILL, LAST_PREFILL, DECODE, FORK, WAITING = "P", "p", "•", "f", "w"
DRAFTED, REJECTED = "A", "x"
PREEMPTED, RECOMPUTE, SWAPPED, PAUSE = "▼", "r", "s", "║"
MARK_MEANINGS = (
    (PREFILL, "prefill"), (LAST_PREFILL, "its last part"), (DECODE, "decode"),
    (DRAFTED, "drafted, accepted"), (REJECTED, "drafted, rejected"), (FORK, "fork"), (WAITING, "waiting"),
    (PREEMPTED, "preempted"), (RECOMPUTE, "recomputed"), (SWAPPED, "swapped"), (PAUSE, "paused"),
)  # fmt: skip
"""Every mark and its meaning, in the order of a legend."""


class StepColumn(msgspec.Struct):
    """One step, or one moment at which the scheduler was paused."""

    step: int
    marks: dict[int, str] = msgspec.field(default_factory=dict)
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
    """The last steps, oldest first, as `mirror` has folded them."""

    def __init__(self, mirror: CacheMirror) -> None:
        self._mirror = mirror
        self.columns: deque[StepColumn] = deque(maxlen=MAX_COLUMNS)
        self.num_columns = 0
        """Columns made so far, those forgotten included."""
        self._once = ComputedOnce()
        self._forked: list[int] = []
        """Children of the forks in the report that is being folded."""
        self._preempted: list[int] = []
        """Likewise, who had to give way."""

    def copy(self, mirror: CacheMirror) -> "StepColumns":
        """The same, to follow a copy of the mirror."""
        twin = with_own_containers(self)
        twin._mirror, twin._once = mirror, self._once.copy()
        if columns := twin.columns:  # a fork is marked in the last one afterwards
            columns[-1] = msgspec.structs.replace(columns[-1], marks=columns[-1].marks.copy())
        return twin

    def pause(self) -> None:
        """The scheduler was paused after the last step."""
        last = self.columns[-1] if self.columns else StepColumn(0)
        if not last.paused:
            self._append(StepColumn(last.step, {}, 0, last.num_available, paused=True))

    def hears(self) -> Hears:
        """What becomes of sequences."""
        both: dict[type, Callable[[Any], None]] = {
            SequenceForked: self._note_fork,
            SequencePreempted: self._note_loss,
            ContentsLost: self._note_loss,
        }
        return {kind: partial(_both, hear, both.get(kind)) for kind, hear in self._once.hears().items()}

    def take(self, report: StepReport) -> None:
        """One more column, unless only verbs ran that preempted nobody."""
        for child_id in self._forked:
            self._mark_fork(child_id, report)
        if report.batch or self._preempted:
            self._append(self._column(report))
        self._forked.clear()
        self._preempted.clear()

    def _column(self, report: StepReport) -> StepColumn:
        available, seconds = report.pool.free + report.pool.cached, report.timings.total
        column = StepColumn(report.step, num_available=available, seconds=seconds, report=report)
        for sequence in self._mirror.sequences.values():
            if sequence.status == "waiting":
                column.marks[sequence.seq_id] = WAITING
            elif sequence.status == "swapped":
                column.marks[sequence.seq_id] = SWAPPED
        if type(report.batch) is DecodeBatch:
            column.num_tokens = len(report.batch)
            column.marks.update(dict.fromkeys(report.batch.seq_ids, DECODE))
        else:
            self._mark_entries(column, report.batch)
        for seq_id in self._preempted:
            column.marks[seq_id] = PREEMPTED
        return column

    def _mark_entries(self, column: StepColumn, batch: Batch) -> None:
        sequences = self._mirror.sequences
        for entry in batch:
            column.num_tokens += entry.num_prefill + entry.num_decode
            known = sequences.get(entry.seq_id)
            column.marks[entry.seq_id] = self._mark(entry, known.num_computed if known else 0)

    def _append(self, column: StepColumn) -> None:
        self.columns.append(column)
        self.num_columns += 1

    def _note_fork(self, event: SequenceForked) -> None:
        self._forked.append(event.child_id)

    def _note_loss(self, event: SequencePreempted | ContentsLost) -> None:
        self._preempted.append(event.seq_id)

    def _mark_fork(self, child_id: int, report: StepReport) -> None:
        """A fork comes before the child's first step: it is marked in the column before, where the child is not."""
        if not self.columns:
            self._append(StepColumn(report.step, num_available=report.pool.free + report.pool.cached))
        self.columns[-1].marks[child_id] = FORK

    def _mark(self, entry: BatchEntry, num_computed: int) -> str:
        if not entry.num_prefill:
            return DECODE if not entry.num_drafted else DRAFTED if entry.num_accepted else REJECTED
        if num_computed - entry.num_prefill < self._once.of(entry.seq_id):
            return RECOMPUTE
        return LAST_PREFILL if entry.token_ids else PREFILL


def _both(first: Callable[[Any], None], second: Callable[[Any], None] | None, event: CacheEvent) -> None:
    first(event)
    if second is not None:
        second(event)
