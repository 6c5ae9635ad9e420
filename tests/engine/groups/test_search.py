"""Beam search as arithmetic: against all there is, and against a search that never stops early."""

from itertools import product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pagedchat.engine.groups.beam_params import BeamSearchParams
from pagedchat.engine.groups.search import BeamSearch
from tests.engine.groups.beam_model import VOCAB, likely_after, run_search

EOS = frozenset({VOCAB - 1})
PENALTIES = st.sampled_from([-1.5, 0.0, 0.5, 1.0, 3.0])


class Patient(BeamSearch):
    def _cannot_improve(self, best_sum: float, length: int) -> bool:
        return False


def hypotheses(search: BeamSearch) -> list[tuple[list[int], float]]:
    return [(one.token_ids, pytest.approx(one.score)) for one in search.best()]


@settings(max_examples=30, deadline=None)
@given(st.lists(st.integers(0, 9), min_size=1, max_size=4), st.integers(1, 2), PENALTIES)
def test_a_search_as_wide_as_all_beams_finds_the_best_of_all_texts(
    prompt: list[int], length: int, penalty: float
) -> None:
    search = BeamSearch(BeamSearchParams(VOCAB, length, length_penalty=penalty), frozenset())
    search.num_choices = VOCAB**2
    run_search(search, prompt)

    def sum_of(tokens: tuple[int, ...]) -> float:
        steps = [dict(likely_after([*prompt, *tokens[:i]], VOCAB))[token] for i, token in enumerate(tokens)]
        return sum(steps)

    every = sorted(product(range(VOCAB), repeat=length), key=sum_of, reverse=True)[:VOCAB]
    assert hypotheses(search) == [(list(tokens), sum_of(tokens) / length**penalty) for tokens in every]


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.integers(0, 9), min_size=1, max_size=4), st.integers(1, 4), st.integers(1, 12), PENALTIES,
)  # fmt: skip
def test_who_stops_early_has_missed_nothing(prompt: list[int], width: int, length: int, penalty: float) -> None:
    params = BeamSearchParams(width, length, length_penalty=penalty)
    early, patient = BeamSearch(params, EOS), Patient(params, EOS)
    num_steps = run_search(early, prompt)
    assert num_steps <= run_search(patient, prompt) == length
    assert hypotheses(early) == hypotheses(patient)
    assert len(early.best()) == width
    scores = [one.score for one in early.best()]
    assert scores == sorted(scores, reverse=True)


def test_a_search_stops_before_its_time_where_nothing_better_can_come() -> None:
    search = BeamSearch(BeamSearchParams(1, 50, length_penalty=0.0), EOS)
    assert run_search(search, [3]) < 50


def test_an_end_counts_among_the_best_beams_only() -> None:
    search = BeamSearch(BeamSearchParams(1, 5), frozenset({9}))
    going_on = search.advance([[(1, -0.5), (9, -1.0)]])
    assert [token_id for _, token_id in going_on] == [1]
    assert search.done == []
    search.advance([[(9, -0.25), (2, -1.5)]])
    assert [(one.token_ids, one.score, one.is_whole) for one in search.done] == [([1, 9], -0.375, True)]


def test_several_end_tokens_leave_enough_to_go_on_with() -> None:
    search = BeamSearch(BeamSearchParams(2, 50), frozenset({7, 8, 9}))
    ends = [(7, -0.1), (8, -0.2), (9, -0.3), (1, -5.0), (2, -6.0)]
    assert search.num_choices == 8
    assert [token_id for _, token_id in search.advance([ends])] == [1, 2]


def test_one_that_is_broken_off_has_its_beams_among_the_best() -> None:
    search = BeamSearch(BeamSearchParams(2, 5, length_penalty=0.0), frozenset())
    search.advance([[(1, -0.5), (2, -1.0), (3, -2.0), (4, -3.0)]])
    assert [(one.token_ids, one.cum_logprob) for one in search.best()] == [([1], -0.5), ([2], -1.0)]
