"""Tokens a second, by the engine's own clock."""

import pytest

from pagedchat.metrics.token_rate import WINDOW, TokenRate


def test_before_the_first_step_there_is_none() -> None:
    assert TokenRate().rate() == 0.0


def test_the_rate_is_that_of_the_last_moments() -> None:
    rate = TokenRate()
    for step in range(1000):  # 100 tokens a second
        rate.add(step * 0.01, (step + 1) * 0.01, 1)
    assert rate.rate() == pytest.approx(100.0, rel=0.01)
    for step in range(300):  # 800
        rate.add(10 + step * 0.01, 10 + (step + 1) * 0.01, 8)
    assert rate.rate() == pytest.approx(800.0, rel=0.01)
    assert len(rate._pieces) <= WINDOW / 0.1 + 2


def test_what_was_long_ago_does_not_count() -> None:
    rate = TokenRate()
    rate.add(0.0, 1.0, 50)
    rate.add(100.0, 100.5, 20)
    assert rate.rate() == pytest.approx(40.0)
