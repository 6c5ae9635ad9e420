"""When unreachable cycles are looked for: seldom while an engine runs, never while modules are imported, and behind
a screen when nobody waits."""

import asyncio
import gc
import weakref
from collections.abc import Iterator

import pytest

from pagedchat import garbage
from pagedchat.garbage import (
    ALL_AT_LATEST,
    Garbage,
    freeze_once,
    imports,
    no_collections,
    rare_collections,
    search_everything,
)


@pytest.fixture
def unfrozen() -> Iterator[None]:
    """Nothing is frozen; afterwards what was is again."""
    was_frozen = gc.get_freeze_count() > 0
    gc.unfreeze()
    yield
    gc.unfreeze()
    if was_frozen:
        gc.freeze()
    else:
        freeze_once.cache_clear()


# --- while a model is loaded --------------------------------------------------------------------------


def test_nothing_is_searched_while_modules_are_imported() -> None:
    with no_collections():
        assert not gc.isenabled()
    assert gc.isenabled()


def test_a_search_that_was_switched_off_stays_off() -> None:
    gc.disable()
    try:
        with no_collections():
            pass
        assert not gc.isenabled()
    finally:
        gc.enable()


@pytest.mark.usefixtures("unfrozen")
def test_what_imports_made_is_left_out_of_later_searches() -> None:
    with imports():
        assert not gc.isenabled()
        assert gc.get_freeze_count() == 0
    assert gc.isenabled()
    assert gc.get_freeze_count() > 0


@pytest.mark.usefixtures("unfrozen")
def test_what_is_there_is_frozen_the_first_time_only() -> None:
    freeze_once.cache_clear()
    freeze_once()
    assert gc.get_freeze_count() > 0
    gc.unfreeze()
    freeze_once()
    assert gc.get_freeze_count() == 0


@pytest.mark.usefixtures("unfrozen")
def test_a_frozen_cycle_is_found_when_everything_is_searched() -> None:
    class Cycle:
        def __init__(self) -> None:
            self.itself = self

    cycle = Cycle()
    gone = weakref.ref(cycle)
    gc.freeze()
    del cycle
    gc.collect()
    assert gone() is not None
    search_everything()
    assert gone() is None


# --- while an engine runs -----------------------------------------------------------------------------


def test_thresholds_are_raised_inside_and_put_back() -> None:
    before = gc.get_threshold()
    with rare_collections():
        assert all(inside > outside for inside, outside in zip(gc.get_threshold(), before, strict=True))
    assert gc.get_threshold() == before


def test_the_last_to_leave_puts_them_back() -> None:
    before = gc.get_threshold()
    first, second = rare_collections(), rare_collections()
    first.__enter__()
    second.__enter__()
    first.__exit__(None, None, None)
    assert gc.get_threshold() > before
    second.__exit__(None, None, None)
    assert gc.get_threshold() == before


def test_an_error_puts_them_back_too() -> None:
    before = gc.get_threshold()
    with pytest.raises(RuntimeError), rare_collections():
        raise RuntimeError
    assert gc.get_threshold() == before


def test_higher_ones_and_none_at_all_are_left_alone() -> None:
    before = gc.get_threshold()
    try:
        gc.set_threshold(0, 1_000, 1_000)
        with rare_collections():
            assert gc.get_threshold() == (0, 1_000, 1_000)
    finally:
        gc.set_threshold(*before)


# --- behind a screen ----------------------------------------------------------------------------------


class Program:
    busy = True
    now = 0.0

    def garbage(self) -> Garbage:
        return Garbage(lambda: self.busy, lambda: self.now)


@pytest.mark.usefixtures("unfrozen")
async def test_where_nothing_was_searched_until_the_first_frame_it_is_from_then_on() -> None:
    with no_collections():
        searching = asyncio.create_task(Program().garbage().run())
        await asyncio.sleep(0)
        assert gc.isenabled()
        assert gc.get_freeze_count() > 0  # the screen stays
        searching.cancel()
        await asyncio.gather(searching, return_exceptions=True)
    assert gc.isenabled()


@pytest.mark.usefixtures("unfrozen")
def test_while_replies_are_written_only_what_is_new_is_searched() -> None:
    looking = Program().garbage()
    assert not looking.look()
    assert gc.get_freeze_count() > 0
    assert not looking.look()


@pytest.mark.usefixtures("unfrozen")
def test_everything_is_searched_once_when_the_last_reply_has_ended() -> None:
    program = Program()
    looking = program.garbage()
    looking.look()
    program.busy = False
    assert looking.look()
    frozen = gc.get_freeze_count()
    assert not looking.look()
    assert gc.get_freeze_count() <= frozen  # what was dropped meanwhile is not counted any more


@pytest.mark.usefixtures("unfrozen")
def test_a_program_that_never_rests_is_searched_now_and_then() -> None:
    program = Program()
    looking = program.garbage()
    assert not looking.look()
    program.now = ALL_AT_LATEST
    assert looking.look()
    assert not looking.look()


@pytest.mark.usefixtures("unfrozen")
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
