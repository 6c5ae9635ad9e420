"""Reports come out of the wire as they went in, and what they repeat goes over it once."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pagedchat import events as ev
from pagedchat.service.wire import HEADER, FrameWriter, WireError, event_reader
from pagedchat.step_batch import Batch, BatchEntry, DecodeBatch
from tests.service.test_wire import REPORT

SEQ_IDS = st.sampled_from([(), (1,), (1, 2), (2, 1), (300, 70_000, 5)])
LISTS = st.just([BatchEntry(1, 4, 0, [9])]) | st.just([])


@st.composite
def batches(draw: st.DrawFn) -> Batch:
    seq_ids = draw(SEQ_IDS)
    token_ids = st.lists(st.integers(0, 200_000), min_size=len(seq_ids), max_size=len(seq_ids))
    return draw(LISTS | st.builds(DecodeBatch, st.just(list(seq_ids)), token_ids))


def report(batch: Batch) -> ev.StepReport:
    return ev.StepReport(3, 0.5, batch, [], REPORT.pool, REPORT.queues, REPORT.timings, REPORT.counters)


def frame(steps: ev.Steps) -> bytes:
    return bytes(FrameWriter().frame(steps))


@settings(deadline=None)
@given(st.lists(st.lists(batches(), max_size=6), max_size=4))
def test_steps_survive_the_wire_however_they_are_split_into_frames(frames: list[list[Batch]]) -> None:
    sent = [ev.Steps(list(map(report, reports))) for reports in frames]
    reader = event_reader()
    received = [event for steps in sent for event in reader.feed(frame(steps))]
    assert received == sent
    kinds = [[type(entry.batch) for entry in steps.reports] for steps in sent]
    assert [[type(entry.batch) for entry in steps.reports] for steps in received] == kinds  # type: ignore[union-attr]


def test_sequences_go_over_the_wire_once_while_they_stay_the_same() -> None:
    seq_ids = list(range(1000, 1256))
    lengths = [len(frame(ev.Steps([report(DecodeBatch(seq_ids, [5] * 256))] * count))) for count in (1, 2, 3)]
    one_more = lengths[2] - lengths[1]
    assert lengths[0] - one_more >= 3 * 256  # each id took three bytes
    assert one_more < 256 + 200  # a token of one byte each, and the report itself


def test_equal_sequences_are_one_list_across_frames() -> None:
    reader = event_reader()
    lists = []
    for _ in range(2):
        (steps,) = reader.feed(frame(ev.Steps([report(DecodeBatch([4, 5], [1, 2]))] * 2)))
        assert isinstance(steps, ev.Steps)
        lists += [entry.batch.seq_ids for entry in steps.reports if isinstance(entry.batch, DecodeBatch)]
    assert len(lists) == 4
    assert all(seq_ids is lists[0] for seq_ids in lists)


@pytest.mark.parametrize("batch", [DecodeBatch([], [1]), DecodeBatch([1, 2], [1]), DecodeBatch([1], [])])
def test_tokens_without_their_sequences_are_no_message(batch: DecodeBatch) -> None:
    data = frame(ev.Steps([report(batch)]))
    assert len(data) > HEADER.size
    with pytest.raises(WireError, match="is not a message"):
        list(event_reader().feed(data))
