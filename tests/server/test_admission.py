"""Who is let in, and how all leave in the end."""

import asyncio

import pytest

from pagedchat.server import admission as admission_module
from pagedchat.server.admission import Admission, Answer


async def test_as_many_are_let_in_as_may_be() -> None:
    admission = Admission(3)
    with admission.inside(2):
        assert (admission.ask(1), admission.ask(2)) == (Answer.COME_IN, Answer.FULL)
        with admission.inside(1):
            assert admission.ask(1) is Answer.FULL
    assert admission.num_inside == 0
    assert admission.ask(3) is Answer.COME_IN


async def test_more_than_may_be_come_in_while_nobody_is_there() -> None:
    admission = Admission(1)
    assert admission.ask(5) is Answer.COME_IN
    with admission.inside(1):
        assert admission.ask(5) is Answer.FULL


async def test_closing_waits_for_those_that_are_in_and_lets_nobody_else_in() -> None:
    admission = Admission(4)
    with admission.inside(1):
        closing = asyncio.ensure_future(admission.close(60))
        await asyncio.sleep(0)
        assert admission.ask(1) is Answer.CLOSING
        assert not closing.done()
    await asyncio.wait_for(closing, 5)


async def test_those_that_stay_too_long_are_told_to_leave() -> None:
    admission = Admission(4)
    told = asyncio.Event()
    admission.on_cut.add(told.set)
    with admission.inside(1):
        closing = asyncio.ensure_future(admission.close(0))
        await asyncio.wait_for(told.wait(), 5)
    await asyncio.wait_for(closing, 5)


async def test_whoever_cuts_ends_the_waiting() -> None:
    admission = Admission(4)
    with admission.inside(1):
        closing = asyncio.ensure_future(admission.close(3600))
        await asyncio.sleep(0)
        admission.cut()
    await asyncio.wait_for(closing, 5)


async def test_one_that_does_not_leave_keeps_nobody_from_ending(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(admission_module, "SECONDS_TO_LEAVE", 0.01)
    admission = Admission(4)
    with admission.inside(1):
        await asyncio.wait_for(admission.close(0), 5)
