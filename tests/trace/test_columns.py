"""Reports are packed as columns and unpacked as they were, plain decodes as what they are."""

import msgspec
import pytest

from pagedchat import cache_events as ce
from pagedchat import events as ev
from pagedchat.step_batch import Batch, BatchEntry, DecodeBatch
from pagedchat.trace.columns import pack_reports, unpack_reports
from tests.service.test_wire import REPORT

PLAIN = DecodeBatch([3, 1], [70_000, 5])
BATCHES: list[Batch] = [
    PLAIN,
    [BatchEntry(3, 0, 1, [6]), BatchEntry(1, 90, 0, [])],
    [],
    [BatchEntry(3, 0, 1, [6, 7])],
    [BatchEntry(3, 0, 3, [6, 7, 8], 5), BatchEntry(1, 0, 1, [9])],
    [BatchEntry(3, 0, 1, [6], 4)],
    [BatchEntry(3, 1, 0, [6])],
    PLAIN,
    DecodeBatch([3], [4]),
]


def report(batch: Batch) -> ev.StepReport:
    return ev.StepReport(3, 0.5, batch, [], REPORT.pool, REPORT.queues, REPORT.timings, REPORT.counters)


def test_batches_of_every_kind_are_unpacked_as_they_were() -> None:
    reports = list(map(report, BATCHES))
    unpacked = unpack_reports(pack_reports(reports))
    assert unpacked == reports
    assert [type(after.batch) for after in unpacked] == [type(batch) for batch in BATCHES]


def test_entries_and_columns_are_the_same_bytes() -> None:
    assert pack_reports([report(PLAIN)]) == pack_reports([report(list(PLAIN))])


@pytest.mark.parametrize("batch", [DecodeBatch([1, 2], [3]), DecodeBatch([1], [3, 4])])
def test_columns_that_do_not_fit_are_not_unpacked(batch: DecodeBatch) -> None:
    with pytest.raises(ValueError, match=r"add up|shorter|longer"):
        unpack_reports(pack_reports([report(batch)]))


def test_reports_of_before_causes_were_told_are_read_without_them() -> None:
    told = [
        ce.BlockEvicted(3, "hand"),
        ce.BlockCopied(1, 0, 2, 3, 4, "rewind"),
        ce.SequencePreempted(1, "recompute", 9, 2, "waiting", 8, 2, "running"),
        ce.BlockUncached(4, "write"),
    ]
    lengths = (2, 6, 6, 2)
    packed = msgspec.msgpack.decode(pack_reports([msgspec.structs.replace(report(PLAIN), events=told)]))
    packed[5] = packed[5][:10]  # the counters
    assert packed.pop() == [], "of drafts there was nothing to tell"
    packed[-1] = [event[:length] for event, length in zip(packed[-1], lengths, strict=True)]
    [old] = unpack_reports(msgspec.msgpack.encode(packed))
    assert old.events == [
        ce.BlockEvicted(3),
        ce.BlockCopied(1, 0, 2, 3, 4),
        ce.SequencePreempted(1, "recompute", 9, 2, "waiting"),
        ce.BlockUncached(4),
    ]
    assert old.counters.kept_tokens == 0
