"""Prompt lookup finds what a search of the whole text finds, whatever the text."""

import time

from hypothesis import given, settings
from hypothesis import strategies as st

from pagedchat.engine.speculation.lookup import MOST_LOOKED_AT, PromptLookup, continued


def searched(token_ids: list[int], longest: int, shortest: int, most: int, needed: int) -> list[int]:
    """The same by looking at the newest places one by one."""
    best, length, num_looked_at = -1, 0, 0
    for at in range(len(token_ids) - 2, shortest - 2, -1):
        agreeing = 0
        while agreeing <= at and agreeing < longest and token_ids[at - agreeing] == token_ids[-1 - agreeing]:
            agreeing += 1
        if agreeing < shortest or num_looked_at == MOST_LOOKED_AT:
            continue
        num_looked_at += 1
        if agreeing > length:
            best, length = at, agreeing
    if length < max(needed, shortest):
        return []
    text = list(token_ids)
    for i in range(most):  # one token after the other, as a decoder of LZ77 copies
        text.append(text[best + 1 + i])
    return text[len(token_ids) :]


@settings(max_examples=150, deadline=None)
@given(
    st.lists(st.integers(0, 2), min_size=1, max_size=60), st.integers(1, 4), st.integers(0, 3), st.integers(0, 4),
    st.integers(1, 9), st.integers(1, 12),
)  # fmt: skip
def test_drafts_are_those_of_a_search(tokens, shortest, more, needed, at_once, most):
    lookup = PromptLookup(shortest + more, shortest)
    for end in range(1, len(tokens) + 1):
        while not lookup.catch_up(tokens[:end], at_once):
            pass
        draft = lookup.draft(tokens[:end], most, needed)
        assert draft == searched(tokens[:end], shortest + more, shortest, most, needed)


def test_the_longest_agreement_wins_over_a_newer_one():
    tokens = [1, 2, 3, 4, 5, 9, 3, 4, 7, 2, 3, 4]
    lookup = PromptLookup(3, 2)
    assert lookup.catch_up(tokens)
    assert lookup.draft(tokens, 2) == [5, 9]


def test_a_short_period_is_drafted_beyond_its_end():
    assert continued([7, 8, 9], 1, 5) == [8, 9, 8, 9, 8]


def test_nothing_is_drafted_where_nothing_agrees():
    lookup = PromptLookup(4, 2)
    assert lookup.catch_up([1, 2, 3, 4])
    assert lookup.draft([1, 2, 3, 4], 4) == []


def test_a_long_prompt_is_taken_in_piece_by_piece():
    lookup, tokens = PromptLookup(4, 2), list(range(5000))
    assert [lookup.catch_up(tokens) for _ in range(5)] == [False, False, False, False, True]


def test_a_step_costs_as_much_in_a_long_text_as_in_a_short_one():
    """It is some microseconds; a search of 200,000 tokens would take milliseconds."""
    tokens = [number * 7919 % 5003 for number in range(200_000)]
    lookup = PromptLookup(4, 2)
    lookup.catch_up(tokens, len(tokens))
    seconds = []
    for _ in range(200):
        tokens.append(len(tokens) * 7919 % 5003)
        began = time.perf_counter()
        lookup.catch_up(tokens)
        assert len(lookup.draft(tokens, 10)) == 10
        seconds.append(time.perf_counter() - began)
    assert sorted(seconds)[100] < 0.001
