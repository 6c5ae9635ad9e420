"""When pieces of missing steps are made."""

from typing import Any, get_args

import pytest

from pagedchat.runtime.graphs.shelf import Making, Piece
from pagedchat.runtime.graphs.workshop import BEFORE_TOKENS, PATIENCE, Waiting, Workshop
from tests.fakes import FakeClock

PIECES: dict[Piece, Piece] = {"kernels": "layout", "layout": "trial", "trial": "capture", "capture": "start"}


class Kernels:
    """Stands for a `BuildAhead`."""

    def __init__(self, done: bool) -> None:
        self.done = done

    def wait(self, _seconds: float) -> bool:
        return self.done


class Pieces:
    """Stands for a shelf on which every piece takes this long."""

    def __init__(self, clock: FakeClock, seconds: float = 0.004, known: float | None = 0.004) -> None:
        self.clock, self.seconds, self.known = clock, seconds, known
        self.making: dict[str, Making] = {}
        self.done: list[tuple[str, Piece]] = []

    def want(self, key: str) -> Making:
        return self.making.setdefault(key, Making(self.clock.now, self.clock.now))

    def expected(self, _making: Making) -> float | None:
        return self.known

    def describe(self, key: str) -> str:
        return f"step {key}"

    def go_on(self, key: str) -> None:
        making = self.making[key]
        self.done.append((key, making.piece))
        self.clock.now += self.seconds
        if making.piece == "start":
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
    for waiting in get_args(Waiting):
        assert not workshop.is_due(waiting)
        assert workshop.work(waiting) == []


def test_between_tokens_one_piece_and_then_a_rest(clock: FakeClock) -> None:
    shelf = Pieces(clock)
    workshop = made(Pieces(clock), shelf, clock=clock)
    shelf.want("a")
    assert any(workshop.wanted)
    assert workshop.is_due("next token")
    workshop.work("next token")
    assert shelf.done == [("a", "kernels")]
    assert not workshop.is_due("next token")
    clock.now += 0.0119
    assert not workshop.is_due("next token")
    clock.now += 0.0002
    assert workshop.is_due("next token")


def test_where_nobody_has_tokens_as_many_as_there_is_time_for(clock: FakeClock) -> None:
    shelf = Pieces(clock, 0.006, known=0.006)
    workshop = made(shelf, clock=clock)
    for key in "ab":
        shelf.want(key)
    began = clock.now
    for num_done in (3, 6, 9, 10):
        workshop.work("first token")
        assert len(shelf.done) == num_done
        assert clock.now - began <= BEFORE_TOKENS
        began = clock.now
    assert not any(workshop.wanted)


def test_while_nobody_waits_a_piece_may_take_as_long_as_it_likes(clock: FakeClock) -> None:
    shelf = Pieces(clock, 5.0, known=5.0)
    workshop = made(shelf, clock=clock)
    shelf.want("a")
    assert not workshop.is_due("first token")
    assert workshop.is_due("nobody")
    assert workshop.work("nobody") == ["kernels of step a: 5000.0 ms"]
    assert shelf.done == [("a", "kernels")]


def test_what_nobody_has_measured_comes_where_nobody_has_tokens_and_alone(clock: FakeClock) -> None:
    shelf = Pieces(clock, 0.001, known=None)
    workshop = made(shelf, clock=clock)
    shelf.want("a")
    assert not workshop.is_due("next token")
    assert workshop.is_due("first token")
    workshop.work("first token")
    assert shelf.done == [("a", "kernels")]
    clock.now += PATIENCE - 0.002
    assert not workshop.is_due("next token")
    clock.now += 0.002
    assert workshop.is_due("next token")


def test_what_waits_for_its_kernels_holds_nobody_up(clock: FakeClock) -> None:
    shelf = Pieces(clock)
    workshop = made(shelf, clock=clock)
    shelf.want("a").kernels = kernels = Kernels(done=False)
    assert not workshop.is_due("next token")
    shelf.want("b")
    workshop.work("next token")
    assert shelf.done == [("b", "kernels")]
    kernels.done = True
    clock.now += 1
    del shelf.making["b"]
    assert workshop.is_due("next token")


def test_what_was_asked_for_last_comes_first(clock: FakeClock) -> None:
    shelf = Pieces(clock)
    workshop = made(shelf, clock=clock)
    for key in "abc":
        shelf.want(key)
        clock.now += 1
    shelf.making["b"].asked = clock.now
    workshop.work("next token")
    assert shelf.done == [("b", "kernels")]


def test_a_piece_that_is_known_to_be_long_waits_for_a_better_time(clock: FakeClock) -> None:
    shelf = Pieces(clock, 0.015, known=0.015)
    workshop = made(shelf, clock=clock)
    shelf.want("a")
    assert not workshop.is_due("next token")
    assert workshop.is_due("first token")
    workshop.work("first token")
    assert shelf.done == [("a", "kernels")]


def test_no_piece_waits_for_ever(clock: FakeClock) -> None:
    shelf = Pieces(clock, 0.5, known=0.5)
    workshop = made(shelf, clock=clock)
    shelf.want("a")
    assert not workshop.is_due("first token")
    clock.now += PATIENCE
    assert workshop.is_due("next token")
    assert workshop.work("next token") == ["kernels of step a: 500.0 ms"]
