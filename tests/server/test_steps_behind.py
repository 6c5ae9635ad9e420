"""Replies of programs go past steps that wait to be folded, and past nothing else."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import msgspec

from pagedchat import events as ev
from pagedchat.server.steps_behind import _PIECE, StepsBehind
from pagedchat.service.commands import Pause
from tests.api.linked_engine import LinkedEngine
from tests.service.test_wire import REPORT


class Told(LinkedEngine):
    """An engine that says what it is given."""

    def __init__(self) -> None:
        super().__init__()
        self.num_heard = 0
        self.told: asyncio.Queue[ev.EngineEvent | None] = asyncio.Queue()

    async def events(self) -> AsyncIterator[ev.EngineEvent]:
        while (event := await self.told.get()) is not None:
            self.num_heard += 1
            yield event


PARTS = 1 + len(REPORT.batch) + len(REPORT.events)
COUNT = _PIECE // PARTS
"""Reports of a piece."""


def steps(first: int, count: int) -> ev.Steps:
    return ev.Steps([msgspec.structs.replace(REPORT, step=step) for step in range(first, first + count)])


def outputs(request_id: int) -> ev.RequestOutputs:
    return ev.RequestOutputs([request_id], [])


def told(*events: ev.EngineEvent, end: bool = True) -> Told:
    link = Told()
    for event in (*events, None) if end else events:
        link.told.put_nowait(event)
    return link


async def all_of(link: Told, **options: Any) -> list[Any]:
    return [event async for event in StepsBehind(link, **options).events()]


def numbers(events: list[Any]) -> list[Any]:
    """Of steps their numbers, of outputs whose they are."""
    return [
        [each.step for each in event.reports] if isinstance(event, ev.Steps)
        else event.request_ids[0] if isinstance(event, ev.RequestOutputs) else event
        for event in events
    ]  # fmt: skip


async def test_steps_come_in_small_pieces_and_of_these_one_at_most_before_each_output() -> None:
    events = await all_of(told(steps(1, 2 * COUNT + 1), outputs(1), outputs(2)))
    pieces = [[*range(1, 1 + COUNT)], [*range(1 + COUNT, 1 + 2 * COUNT)], [1 + 2 * COUNT]]
    assert numbers(events) == [pieces[0], 1, pieces[1], 2, pieces[2]]


async def test_what_comes_while_steps_are_folded_waits_for_one_piece_at_most() -> None:
    link, heard = told(steps(1, 10 * COUNT), end=False), []
    async for event in StepsBehind(link).events():
        heard.append(event)
        if len(heard) == 1:
            link.told.put_nowait(outputs(7))
            link.told.put_nowait(None)
    assert 7 in numbers(heard)[1:3]
    assert len(heard) == 11


async def test_nothing_goes_past_what_is_no_step() -> None:
    state = ev.RunState(True)
    events = await all_of(told(steps(1, 1), state, outputs(1), steps(2, 1), outputs(2)))
    assert numbers(events) == [[1], state, 1, [2], 2]


async def test_more_than_may_wait_waits_where_it_comes_from() -> None:
    link = told(*(steps(number, 1) for number in range(100)))
    source = StepsBehind(link, limit=10).events()
    first = await anext(source)
    for _ in range(50):
        await asyncio.sleep(0)
    assert link.num_heard < 30
    assert [first, *[event async for event in source]] == [steps(number, 1) for number in range(100)]


async def test_commands_go_through() -> None:
    link = told()
    StepsBehind(link).send(Pause())
    assert link.sent == [Pause()]
