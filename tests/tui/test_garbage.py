"""When unreachable cycles are looked for."""

import asyncio
import gc
from collections.abc import Iterator

import pytest

from pagedchat.tui import garbage
from pagedchat.tui.garbage import ALL_AT_LATEST, Garbage


@pytest.fixture(autouse=True)
def unfrozen() -> Iterator[None]:
    yield
    gc.unfreeze()


class Program:
    busy = True
    now = 0.0

    def garbage(self) -> Garbage:
        return Garbage(lambda: self.busy, lambda: self.now)


def test_while_replies_are_written_only_what_is_new_is_searched() -> None:
    looking = Program().garbage()
    assert not looking.look()
    assert gc.get_freeze_count() > 0
    assert not looking.look()


def test_everything_is_searched_once_when_the_last_reply_has_ended() -> None:
    program = Program()
    looking = program.garbage()
    looking.look()
    program.busy = False
    assert looking.look()
    frozen = gc.get_freeze_count()
    assert not looking.look()
    assert gc.get_freeze_count() == frozen


def test_a_program_that_never_rests_is_searched_now_and_then() -> None:
    program = Program()
    looking = program.garbage()
    assert not looking.look()
    program.now = ALL_AT_LATEST
    assert looking.look()
    assert not looking.look()


async def test_python_does_as_before_afterwards(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(garbage, "PAUSE", 0.001)
    before = gc.get_threshold()
    running = asyncio.create_task(Program().garbage().run())
    await asyncio.sleep(0.05)
    assert gc.get_threshold()[2] > before[2]
    assert gc.get_freeze_count() > 0
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    assert gc.get_threshold() == before
    assert gc.get_freeze_count() == 0
