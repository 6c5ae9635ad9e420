"""Beam search as arithmetic: which continuations of some beams survive, which are done, and when no other can win.

Knows no sequences and no blocks: a beam is a place in a list, with the sum of its tokens' log-probabilities. The
search is that of transformers with `early_stopping="never"`: nothing is given up that could still win.

At every step the most likely continuations of all beams are ranked together. One that ends counts only among the
best `beam_width`; of those that go on, the best `beam_width` are the next beams. A beam's score is its sum divided
by the number of its tokens, the prompt left out, to the power of the length penalty.
"""

from collections.abc import Sequence as Items
from typing import NamedTuple

from pagedchat.engine.groups.beam_params import BeamSearchParams
from pagedchat.engine.output import Ranked

Choice = tuple[int, float]
"""A token that may come next, and its log-probability."""
Continuation = tuple[int, int]
"""A beam's place among the beams before, and its next token."""


class Hypothesis(NamedTuple):
    """A beam that is done."""

    score: float
    """By which hypotheses are compared."""
    token_ids: list[int]
    """Without the prompt."""
    cum_logprob: float
    is_whole: bool
    """Whether it ended by itself, not because it is as long as it may be."""


class BeamSearch:
    """One search.

    Args:
        params: how wide, how long.
        stop_token_ids: those that end a beam.
    """

    def __init__(self, params: BeamSearchParams, stop_token_ids: frozenset[int]) -> None:
        self._params = params
        self.stop_token_ids = stop_token_ids
        self.num_choices = params.beam_width * max(2, 1 + len(stop_token_ids))
        """Of each beam, the most likely next tokens that are looked at: enough to go on with if all others end."""
        self.beams: list[tuple[list[int], float]] = [([], 0.0)]
        """Tokens and sums of those that live, the best first."""
        self.done: list[Hypothesis] = []
        """The best that have ended, the best first; at most `beam_width`."""
        self.is_over = False

    def advance(self, choices: Items[Items[Choice]]) -> list[Continuation]:
        """One step.

        Args:
            choices: of each beam, its `num_choices` most likely next tokens.

        Returns:
            The next beams, the best first; none where the search is over.
        """
        costs = [  # sums with the sign changed, to be sorted as they are
            (-beam_sum - logprob, index, token_id)
            for index, ((_, beam_sum), of_beam) in enumerate(zip(self.beams, choices, strict=True))
            for token_id, logprob in of_beam
        ]
        costs.sort()
        return self.advance_by([(-cost, index, token_id) for cost, index, token_id in costs[: self.num_choices]])

    def advance_by(self, ranked: Items[Ranked]) -> list[Continuation]:
        """One step, whose continuations somebody else has ranked: the best `num_choices`, the best first."""
        width = self._params.beam_width
        length = len(self.beams[0][0]) + 1
        is_last = length == self._params.max_tokens
        beams: list[tuple[list[int], float]] = []
        going_on: list[Continuation] = []
        for rank, (cum_logprob, index, token_id) in enumerate(ranked):
            ends = token_id in self.stop_token_ids
            if ends or is_last:
                if rank < width:
                    self._keep([*self.beams[index][0], token_id], cum_logprob, is_whole=ends)
            elif len(going_on) < width:
                going_on.append((index, token_id))
                beams.append(([*self.beams[index][0], token_id], cum_logprob))
        if is_last or not beams or self._cannot_improve(beams[0][1], length):
            self.is_over = True
            return []
        self.beams = beams
        return going_on

    def best(self) -> list[Hypothesis]:
        """The best `beam_width` so far; of a search that was broken off the beams that live are among them."""
        if self.is_over:
            return self.done
        living = [
            Hypothesis(self._score(cum_logprob, len(token_ids)), token_ids, cum_logprob, is_whole=False)
            for token_ids, cum_logprob in self.beams
        ]
        return _best_of([*self.done, *living], self._params.beam_width)

    def _keep(self, token_ids: list[int], cum_logprob: float, *, is_whole: bool) -> None:
        hypothesis = Hypothesis(self._score(cum_logprob, len(token_ids)), token_ids, cum_logprob, is_whole)
        self.done = _best_of([*self.done, hypothesis], self._params.beam_width)

    def _cannot_improve(self, best_sum: float, length: int) -> bool:
        """Whether the best of the beams cannot be better in the end than the worst of as many as are wanted.

        Sums only fall. Where length is rewarded, a beam could do no better than to be as long as it may be at the
        price of nothing; where it is not, no better than now.
        """
        if len(self.done) < self._params.beam_width:
            return False
        longest = self._params.max_tokens if self._params.length_penalty > 0 else length
        return self._score(best_sum, longest) <= self.done[-1].score

    def _score(self, cum_logprob: float, length: int) -> float:
        return cum_logprob / length**self._params.length_penalty if length else cum_logprob


def _best_of(hypotheses: list[Hypothesis], count: int) -> list[Hypothesis]:
    return sorted(hypotheses, key=_by_score)[:count]


def _by_score(hypothesis: Hypothesis) -> float:
    return -hypothesis.score
