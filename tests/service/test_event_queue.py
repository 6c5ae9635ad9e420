"""Events that nobody takes fill no memory: their source is not listened to until half of them are gone."""

import asyncio

import pytest

from pagedchat import events as ev
from pagedchat.service import event_queue
from pagedchat.service.event_queue import EventQueue
from tests.service.test_wire import REPORT

PARTS = 1 + len(REPORT.batch) + len(REPORT.events)


def test_the_source_is_held_above_the_limit_and_let_go_when_half_is_taken() -> None:
    async def run() -> None:
        held: list[bool] = []
        queue = EventQueue(held.append, limit=4 * PARTS)
        for _ in range(4):
            queue.put(ev.Steps([REPORT]))
        assert held == []
        queue.put(ev.RunState(True))
        queue.put(ev.RunState(False))  # what comes all the same is taken
        assert (held, queue.is_full) == ([True], True)
        taken = [await queue.get() for _ in range(2)]
        assert held == [True]
        taken += [await queue.get() for _ in range(2)]
        assert (held, queue.is_full) == ([True, False], False)
        taken += [await queue.get(), await queue.get()]
        assert queue.empty()
        assert queue.num_parts == 0
        assert taken == [ev.Steps([REPORT])] * 4 + [ev.RunState(True), ev.RunState(False)]

    asyncio.run(run())


def test_parts_are_counted_once(monkeypatch: pytest.MonkeyPatch) -> None:
    async def run() -> None:
        queue = EventQueue(lambda _: None)
        for _ in range(3):
            queue.put(ev.Steps([REPORT]))
        for _ in range(3):
            await queue.get()

    counted: list[object] = []
    count = event_queue.num_parts
    monkeypatch.setattr(event_queue, "num_parts", lambda event: (counted.append(event), count(event))[1])
    asyncio.run(run())
    assert len(counted) == 3


def test_the_end_comes_last() -> None:
    async def run() -> None:
        queue = EventQueue(lambda _: None)
        queue.put(ev.RunState(True))
        queue.put(None)
        assert [await queue.get(), await queue.get()] == [ev.RunState(True), None]

    asyncio.run(run())
