"""Drafts that do not pay are made less and less, whatever a step costs; those that pay are made."""

import random

import pytest

from pagedchat.engine.speculation.worth import Worth


def decode(worth: Worth, num_steps: int, row_cost: float, chance: float, num_sequences: int = 1) -> float:
    """How many times the tokens a second of plain decoding: a plain step takes a second."""
    source, seconds, tokens = random.Random(3), 0.0, 0
    for _ in range(num_steps):
        tokens += num_sequences
        drafted = min(4 * num_sequences, worth.most_drafted)
        if not worth.may_draft(num_sequences) or not worth.pays(num_sequences, drafted, 0.75 * drafted):
            worth.note_plain(num_sequences, 1.0)
            seconds += 1.0
            continue
        num_drafted, num_accepted = drafted, 0
        while num_accepted < num_drafted and source.random() < chance:
            num_accepted += 1
        took = 1.0 + row_cost * num_drafted
        worth.note_drafted(num_sequences, num_drafted, num_accepted, took)
        seconds += took
        tokens += num_accepted
    return tokens / seconds / num_sequences


@pytest.mark.parametrize(
    ("row_cost", "num_sequences"), [(0.01, 1), (0.1, 1), (0.5, 1), (3.0, 1), (0.01, 8), (0.1, 8), (0.5, 8)]
)
def test_drafts_that_are_never_right_cost_little(row_cost, num_sequences):
    assert decode(Worth(), 1500, row_cost, 0.0, num_sequences) > 0.97


def test_drafts_that_are_right_are_made():
    assert decode(Worth(), 1500, 0.1, 0.97) > 2


def test_what_was_gained_is_not_all_lost_again():
    worth = Worth()
    decode(worth, 500, 0.1, 0.97)
    assert decode(worth, 1500, 0.5, 0.0) > 0.97


def test_nothing_is_drafted_before_a_step_without_was_measured():
    worth = Worth()
    assert not worth.may_draft(2)
    for _ in range(4):
        worth.note_plain(2, 0.01)
    assert worth.may_draft(2)
    assert not worth.may_draft(3)


def measured(extra: dict[int, float]) -> Worth:
    """A step without drafts takes a second, one with so many drafted tokens so many seconds more."""
    worth = Worth()
    for _ in range(4):
        worth.note_plain(1, 1.0)
    worth.may_draft(1)
    for _ in range(40):
        for num_drafted, seconds in extra.items():
            worth.note_drafted(1, num_drafted, num_drafted, 1.0 + seconds)
    return worth


def test_where_each_token_costs_drafts_are_as_long_as_their_chance_allows():
    worth = measured({k: 0.3 * k for k in (1, 2, 4, 8)})
    assert worth.best_length(1, 0.98, 10) >= 8
    assert 1 <= worth.best_length(1, 0.6, 10) <= 4
    assert worth.best_length(1, 0.2, 10) == 0


def test_where_the_step_costs_drafts_are_long_or_not_at_all():
    worth = measured(dict.fromkeys((1, 2, 4, 8), 3.0))
    assert worth.best_length(1, 0.95, 10) == 10
    assert worth.best_length(1, 0.6, 10) == 0
    worth.note_drafted(1, 10, 10, 3.0)  # whose gain is in the balance
    assert worth.pays(1, 10, 5.0)
    assert not worth.pays(1, 10, 2.0)


def test_what_drafts_cost_once_is_forgotten_in_time():
    worth = measured({4: 50.0})
    assert worth.best_length(1, 0.9, 4) == 0
    for _ in range(600):
        worth.note_plain(1, 1.0)
    assert worth.best_length(1, 0.9, 4) == 4
