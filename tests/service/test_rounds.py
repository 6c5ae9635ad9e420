"""What is due for many at once, a few at a time."""

import pytest

from pagedchat.service.rounds import Round
from tests.fakes import FakeClock


def test_a_round_does_as_many_as_fit_and_the_rest_later() -> None:
    clock, done = FakeClock(), list[int]()

    def do(number: int) -> None:
        done.append(number)
        clock.advance(1.0)

    each = Round(do, clock)
    assert not each.is_on
    assert each.go_on(1.0)
    each.begin(range(7))
    assert not each.go_on(2.5)
    assert (done, each.is_on, each.seconds) == ([0, 1, 2], True, 3.0)
    clock.advance(100.0)  # a step
    assert not each.go_on(0.0)
    assert done == [0, 1, 2, 3]
    assert each.go_on(50.0)
    assert (done, each.is_on, each.seconds, each.began) == ([*range(7)], False, 7.0, 0.0)


def test_one_that_raises_is_not_done_again() -> None:
    clock = FakeClock()

    def do(number: int) -> None:
        clock.advance(1.0)
        if number == 1:
            raise ValueError(number)

    each = Round(do, clock)
    each.begin([0, 1, 2])
    with pytest.raises(ValueError, match="1"):
        each.go_on(9.0)
    assert each.go_on(9.0)
    assert each.seconds == 2.0  # what raised is not counted
