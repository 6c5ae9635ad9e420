"""When an interrupt gets through, and what it finds in place afterwards."""

import signal
import threading
from collections.abc import Iterator

import pytest

from pagedchat.api.interrupts import HeldInterrupts


@pytest.fixture(autouse=True)
def pythons_own() -> Iterator[None]:
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


def interrupt() -> None:
    signal.raise_signal(signal.SIGINT)


def test_an_interrupt_waits_until_it_is_let_through() -> None:
    with HeldInterrupts() as interrupts:
        interrupt()
        with pytest.raises(KeyboardInterrupt):
            interrupts.let_through()
        interrupts.let_through()
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_one_that_came_last_gets_through_at_the_end() -> None:
    with pytest.raises(KeyboardInterrupt), HeldInterrupts():
        interrupt()
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_a_second_one_does_not_wait() -> None:
    with HeldInterrupts():
        interrupt()
        with pytest.raises(KeyboardInterrupt):
            interrupt()


def test_an_error_comes_before_an_interrupt() -> None:
    def fail() -> None:
        with HeldInterrupts():
            interrupt()
            raise ValueError("first")

    with pytest.raises(ValueError, match="first"):
        fail()
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_somebody_elses_handler_is_called_later_and_stays() -> None:
    heard: list[int] = []

    def handler(number: int, _frame: object) -> None:
        heard.append(number)

    signal.signal(signal.SIGINT, handler)
    with HeldInterrupts() as interrupts:
        interrupt()
        assert heard == []
        interrupts.let_through()
        assert heard == [signal.SIGINT]
    assert signal.getsignal(signal.SIGINT) is handler


@pytest.mark.parametrize("handler", [signal.SIG_IGN, signal.SIG_DFL])
def test_what_is_no_function_is_left_alone(handler: signal.Handlers) -> None:
    signal.signal(signal.SIGINT, handler)
    with HeldInterrupts():
        assert signal.getsignal(signal.SIGINT) is handler


def test_a_handler_set_meanwhile_stays() -> None:
    with HeldInterrupts():
        signal.signal(signal.SIGINT, signal.SIG_IGN)
    assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN


def test_other_threads_hear_of_none() -> None:
    found: list[object] = []

    def work() -> None:
        with HeldInterrupts():
            found.append(signal.getsignal(signal.SIGINT))

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert found == [signal.default_int_handler]
