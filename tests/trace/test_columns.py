"""Reports are packed as columns and unpacked as they were, plain decodes as what they are."""

import pytest

from pagedchat import events as ev
from pagedchat.trace.columns import pack_reports, unpack_reports
from tests.service.test_wire import REPORT

PLAIN = ev.DecodeBatch([3, 1], [70_000, 5])
BATCHES: list[ev.Batch] = [
    PLAIN,
    [ev.BatchEntry(3, 0, 1, [6]), ev.BatchEntry(1, 90, 0, [])],
    [],
    [ev.BatchEntry(3, 0, 1, [6, 7])],
    [ev.BatchEntry(3, 1, 0, [6])],
    PLAIN,
    ev.DecodeBatch([3], [4]),
]


def report(batch: ev.Batch) -> ev.StepReport:
    return ev.StepReport(3, 0.5, batch, [], REPORT.pool, REPORT.queues, REPORT.timings, REPORT.counters)


def test_batches_of_every_kind_are_unpacked_as_they_were() -> None:
    reports = list(map(report, BATCHES))
    unpacked = unpack_reports(pack_reports(reports))
    assert unpacked == reports
    assert [type(after.batch) for after in unpacked] == [type(batch) for batch in BATCHES]


def test_entries_and_columns_are_the_same_bytes() -> None:
    assert pack_reports([report(PLAIN)]) == pack_reports([report(list(PLAIN))])


@pytest.mark.parametrize("batch", [ev.DecodeBatch([1, 2], [3]), ev.DecodeBatch([1], [3, 4])])
def test_columns_that_do_not_fit_are_not_unpacked(batch: ev.DecodeBatch) -> None:
    with pytest.raises(ValueError, match=r"add up|shorter|longer"):
        unpack_reports(pack_reports([report(batch)]))
