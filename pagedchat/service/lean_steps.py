"""Reports without what they repeat, for the way from one process to the other.

While the same chats decode, hundreds of reports in a row name the same sequences in the same order. On the way only
the first of them does: a batch of decodes without sequences has those of the last one before it. Knows no bytes.
"""

import msgspec

from pagedchat.events import EngineEvent, StepReport, Steps
from pagedchat.step_batch import DecodeBatch

_SAME: list[int] = []


def lean(steps: Steps) -> Steps:
    """The same without repetitions; `FullSteps` undoes it. Nothing but batches is touched."""
    reports, last = [], None
    for report in steps.reports:
        batch = report.batch
        if type(batch) is not DecodeBatch or not batch.token_ids:
            reports.append(report)
        elif batch.seq_ids == last:
            reports.append(_with_batch(report, DecodeBatch(_SAME, batch.token_ids)))
        else:
            last = batch.seq_ids
            reports.append(report)
    return Steps(reports)


class FullSteps:
    """Undoes `lean` for one event of a connection after the other."""

    def __init__(self) -> None:
        self._seq_ids = _SAME
        """Of the last batch of decodes: those that equal it share the list."""

    def __call__(self, event: EngineEvent) -> EngineEvent:
        """What was given to `lean`; any other event as it is.

        Raises:
            ValueError: a batch whose tokens are more or fewer than its sequences.
        """
        if type(event) is not Steps:
            return event
        return Steps([self._full(report) for report in event.reports])

    def _full(self, report: StepReport) -> StepReport:
        batch = report.batch
        if type(batch) is not DecodeBatch or not (batch.seq_ids or batch.token_ids):
            return report
        if batch.seq_ids and batch.seq_ids != self._seq_ids:
            self._seq_ids = batch.seq_ids
        if len(self._seq_ids) != len(batch.token_ids):
            raise ValueError(f"{len(batch.token_ids)} tokens for {len(self._seq_ids)} sequences")
        return _with_batch(report, DecodeBatch(self._seq_ids, batch.token_ids))


def _with_batch(report: StepReport, batch: DecodeBatch) -> StepReport:
    return msgspec.structs.replace(report, batch=batch)
