"""Rates are the same whether a step's decodes come as entries or as columns."""

from random import Random

import pytest

from pagedchat import events as ev
from pagedchat.step_batch import Batch, BatchEntry, DecodeBatch
from pagedchat.view.state.rates import WINDOW, RateWindow
from tests.service.test_wire import REPORT

CROWDS = ([1, 2, 3], [1, 2], [2, 4], [])


def report(time: float, batch: Batch) -> ev.StepReport:
    return ev.StepReport(1, time, batch, [], REPORT.pool, REPORT.queues, ev.Timings(forward=0.01), REPORT.counters)


@pytest.mark.parametrize("seed", range(5))
def test_columns_are_counted_as_the_entries_for_which_they_stand(seed: int) -> None:
    choose = Random(seed)
    columns, entries = RateWindow(), RateWindow()
    now = 0.0
    for _ in range(200):
        now += choose.choice((0.01, 0.05, WINDOW / 3, WINDOW * 1.5)) if choose.random() < 0.2 else 0.02
        batch: Batch = DecodeBatch(seq_ids := list(choose.choice(CROWDS)), [7] * len(seq_ids))
        if choose.random() < 0.2:
            batch = [*batch, BatchEntry(9, 5, 0, [7])]
        columns.take(report(now, batch))
        entries.take(report(now, list(batch)))
        if choose.random() < 0.1:
            columns = columns.copy()
        assert columns.rate() == entries.rate()
        assert [columns.sequence_rate(i) for i in range(10)] == [entries.sequence_rate(i) for i in range(10)]
    assert entries.rate() > 0


def test_a_copy_is_moved_on_by_itself() -> None:
    window = RateWindow()
    window.take(report(0.02, DecodeBatch([1], [7])))
    twin = window.copy()
    before = twin.sequence_rate(1)
    for number in range(2, 9):
        window.take(report(number * 0.02, DecodeBatch([1], [7])))
    assert twin.sequence_rate(1) == before
