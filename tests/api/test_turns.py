"""Threads in a line: order, refusals, and a thread that comes twice."""

import os
import threading
from collections.abc import Callable

import pytest

from pagedchat.api.turns import Turns
from pagedchat.errors import EngineStateError


@pytest.fixture
def turns() -> Turns:
    return Turns("engine")


def start(work: Callable[[], None]) -> threading.Thread:
    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    return thread


def wait_in_line(turns: Turns, count: int) -> None:
    """Until so many are in the line."""
    pause = threading.Event()
    while len(turns._line) < count:
        pause.wait(0.001)


def test_threads_have_their_turns_in_the_order_in_which_they_came(turns: Turns) -> None:
    order: list[int] = []

    def take(number: int) -> None:
        with turns:
            order.append(number)

    threads = []
    with turns:
        for number in range(6):
            threads.append(start(lambda number=number: take(number)))  # type: ignore[misc]
            wait_in_line(turns, number + 2)
    for thread in threads:
        thread.join(10)
    assert order == list(range(6))
    assert not turns._line
    assert not turns._threads


def test_one_that_comes_again_waits_behind_one_that_waits(turns: Turns) -> None:
    order: list[str] = []

    def take() -> None:
        with turns:
            order.append("other")

    with turns:
        thread = start(take)
        wait_in_line(turns, 2)
    with turns:
        order.append("again")
    thread.join(10)
    assert order == ["other", "again"]


def test_never_two_at_a_time(turns: Turns) -> None:
    inside, most = 0, 0

    def work() -> None:
        nonlocal inside, most
        for _ in range(300):
            with turns:
                inside += 1
                most = max(most, inside)
                inside -= 1

    threads = [start(work) for _ in range(4)]
    for thread in threads:
        thread.join(30)
        assert not thread.is_alive()
    assert (inside, most) == (0, 1)


def test_a_thread_in_a_call_is_refused_a_second_one_and_goes_on(turns: Turns) -> None:
    with turns:
        with pytest.raises(EngineStateError, match="in the middle of a call of the same thread"), turns:
            pass
        assert len(turns._line) == 1
    with turns:
        pass


def test_one_that_is_interrupted_while_it_waits_leaves_the_line(
    turns: Turns, monkeypatch: pytest.MonkeyPatch
) -> None:
    from pagedchat.api import turns as module

    class Interrupted:
        def acquire(self) -> None:
            if len(turns._line) > 1:
                raise KeyboardInterrupt

        def release(self) -> None:
            pass

    had, leave = threading.Event(), threading.Event()

    def hold() -> None:
        with turns:
            had.set()
            leave.wait(10)

    thread = start(hold)
    had.wait(10)
    monkeypatch.setattr(module, "Lock", Interrupted)
    with pytest.raises(KeyboardInterrupt), turns:
        pass
    assert len(turns._line) == 1
    leave.set()
    thread.join(10)
    with turns:
        pass


def test_an_error_inside_leaves_the_line(turns: Turns) -> None:
    with pytest.raises(ValueError, match="inside"), turns:
        raise ValueError("inside")
    with turns:
        pass


def test_what_is_put_off_is_done_now_or_when_the_call_ends(turns: Turns) -> None:
    done: list[str] = []
    turns.soon(lambda: done.append("now"))
    assert done == ["now"]
    with turns:
        turns.soon(lambda: done.append("later"))
        assert done == ["now"]
    assert done == ["now", "later"]


def test_everybody_is_refused_from_then_on_also_those_who_wait(turns: Turns) -> None:
    told: list[str] = []

    def take() -> None:
        try:
            with turns:
                told.append("a turn")
        except EngineStateError as error:
            told.append(error.message)

    with turns:
        thread = start(take)
        wait_in_line(turns, 2)
        turns.refuse(lambda: EngineStateError("It is closed."))
    thread.join(10)
    take()
    assert told == ["It is closed."] * 2
    turns.soon(lambda: told.append("done"))
    with turns.even_if_refused():
        pass
    assert told == ["It is closed."] * 2


def test_a_forked_process_is_refused_even_where_a_thread_had_its_turn(
    turns: Turns, monkeypatch: pytest.MonkeyPatch
) -> None:
    with turns:
        monkeypatch.setattr(os, "getpid", lambda: -1)
        with pytest.raises(EngineStateError, match="belongs to process") as caught, turns:
            pass
        assert "spawn" in caught.value.hint
        turns.soon(lambda: pytest.fail("it was done in the forked process"))
        monkeypatch.undo()
