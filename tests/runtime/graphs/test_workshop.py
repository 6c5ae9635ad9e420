"""When pieces of missing steps are made."""

from typing import Any

import pytest

from pagedchat.runtime.graphs.shelf import Making, Piece
from pagedchat.runtime.graphs.workshop import BEFORE_TOKENS, PATIENCE, Workshop
from tests.fakes import FakeClock

PIECES: dict[Piece, Piece] = {"kernels": "trial", "trial": "capture"}


class Kernels:
    """Stands for a `BuildAhead`."""

    def __init__(self, done: bool) -> None:
        self.done = done

    def wait(self, _seconds: float) -> bool:
        return self.done


class Pieces:
    """Stands for a shelf on which every piece takes this long."""

    def __init__(self, clock: FakeClock, seconds: float = 0.004) -> None:
        self.clock, self.seconds = clock, seconds
        self.making: dict[str, Making] = {}
        self.done: list[tuple[str, Piece]] = []

    def want(self, key: str) -> Making:
        return self.making.setdefault(key, Making(self.clock.now, self.clock.now))

    def go_on(self, key: str) -> None:
        making = self.making[key]
        self.done.append((key, making.piece))
        self.clock.now += self.seconds
        if making.piece == "capture":
            del self.making[key]
        else:
            making.piece = PIECES[making.piece]


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


def made(*shelves: Any, clock: FakeClock) -> Workshop:
    return Workshop(shelves, clock)


def test_nothing_is_due_where_nothing_is_wanted(clock: FakeClock) -> None:
    workshop = made(Pieces(clock), clock=clock)
    assert not any(workshop.wanted)
    for between_tokens in (False, True):
        assert not workshop.is_due(between_tokens=between_tokens)
        workshop.work(between_tokens=between_tokens)


def test_between_tokens_one_piece_and_then_a_rest(clock: FakeClock) -> None:
    shelf = Pieces(clock)
    workshop = made(Pieces(clock), shelf, clock=clock)
    shelf.want("a")
    assert any(workshop.wanted)
    assert workshop.is_due(between_tokens=True)
    workshop.work(between_tokens=True)
    assert shelf.done == [("a", "kernels")]
    assert not workshop.is_due(between_tokens=True)
    clock.now += 0.0119
    assert not workshop.is_due(between_tokens=True)
    clock.now += 0.0002
    assert workshop.is_due(between_tokens=True)


def test_where_nobody_has_tokens_as_many_as_there_is_time_for(clock: FakeClock) -> None:
    shelf = Pieces(clock, 0.006)
    workshop = made(shelf, clock=clock)
    for key in "ab":
        shelf.want(key)
    began = clock.now
    workshop.work(between_tokens=False)
    assert len(shelf.done) == 3
    assert clock.now - began <= BEFORE_TOKENS
    workshop.work(between_tokens=False)
    assert len(shelf.done) == 6
    assert not any(workshop.wanted)


def test_what_waits_for_its_kernels_holds_nobody_up(clock: FakeClock) -> None:
    shelf = Pieces(clock)
    workshop = made(shelf, clock=clock)
    shelf.want("a").kernels = kernels = Kernels(done=False)
    assert not workshop.is_due(between_tokens=True)
    shelf.want("b")
    workshop.work(between_tokens=True)
    assert shelf.done == [("b", "kernels")]
    kernels.done = True
    clock.now += 1
    del shelf.making["b"]
    assert workshop.is_due(between_tokens=True)


def test_what_was_asked_for_last_comes_first(clock: FakeClock) -> None:
    shelf = Pieces(clock)
    workshop = made(shelf, clock=clock)
    for key in "abc":
        shelf.want(key)
        clock.now += 1
    shelf.making["b"].asked = clock.now
    workshop.work(between_tokens=True)
    assert shelf.done == [("b", "kernels")]


def test_a_piece_that_is_known_to_be_long_waits_for_a_better_time(clock: FakeClock) -> None:
    shelf = Pieces(clock, 0.015)
    workshop = made(shelf, clock=clock)
    shelf.want("a")
    workshop.work(between_tokens=True)  # nobody could know
    shelf.want("b").asked += 1
    clock.now += 1
    shelf.making["a"].kernels = Kernels(done=False)
    assert not workshop.is_due(between_tokens=True)
    assert workshop.is_due(between_tokens=False)
    workshop.work(between_tokens=False)
    assert shelf.done == [("a", "kernels"), ("b", "kernels")]


def test_no_piece_waits_for_ever(clock: FakeClock) -> None:
    shelf = Pieces(clock, 0.5)
    workshop = made(shelf, clock=clock)
    shelf.want("a")
    workshop.work(between_tokens=True)
    shelf.making.clear()
    clock.now += 10
    shelf.want("b")
    assert not workshop.is_due(between_tokens=False)
    clock.now += PATIENCE
    assert workshop.is_due(between_tokens=True)


def test_one_slow_piece_says_nothing_about_the_next(clock: FakeClock) -> None:
    shelf = Pieces(clock, 0.5)
    workshop = made(shelf, clock=clock)
    for seconds in (0.5, 0.002):
        shelf.seconds = seconds
        shelf.want("a")
        clock.now += PATIENCE + 10
        workshop.work(between_tokens=True)
        shelf.making.clear()
    clock.now += 10
    shelf.want("b")
    assert workshop.is_due(between_tokens=True)
