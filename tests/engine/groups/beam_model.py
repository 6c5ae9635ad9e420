"""A model for beam searches: of every prefix a few most likely next tokens, the same whoever asks.

`BeamRunner` answers from the symbolic cache of `kv_simulator`, so that a block copied too late or freed too early
is found out; `expected_search` is the same search over whole prefixes, without sequences, blocks or steps.
"""

import math

from pagedchat.engine.groups.beam_params import BeamSearchParams
from pagedchat.engine.groups.search import BeamSearch, Choice, Hypothesis
from pagedchat.engine.output import (
    BlockOp,
    ModelRunnerOutput,
    Ranked,
    RunningSearch,
    ScheduledSequence,
    SchedulerOutput,
)
from pagedchat.engine.sequence import TokenLogprobs
from tests.engine.kv_simulator import KVSimulator, fingerprint

VOCAB = 10
"""Tokens that a beam can go on with."""


def likely(prefix: int, count: int) -> list[Choice]:
    """The most likely tokens after a prefix with this fingerprint."""
    weights = [1 + fingerprint(prefix, token) % 1_000_003 for token in range(VOCAB)]
    log_of_sum = math.log(sum(weights))
    choices = [(token, math.log(weight) - log_of_sum) for token, weight in enumerate(weights)]
    return sorted(choices, key=lambda choice: -choice[1])[:count]


def likely_after(token_ids: list[int], count: int) -> list[Choice]:
    """The same after these tokens."""
    state = 0
    for token in token_ids:
        state = fingerprint(state, token)
    return likely(state, count)


def run_search(search: BeamSearch, prompt: list[int]) -> int:
    """All of a search; returns its steps."""
    num_steps = 0
    while not search.is_over:
        search.advance([likely_after(prompt + tokens, search.num_choices) for tokens, _ in search.beams])
        num_steps += 1
    return num_steps


def expected_search(
    prompt: list[int], params: BeamSearchParams, stop: frozenset[int] = frozenset()
) -> list[Hypothesis]:
    """What any scheduling must find."""
    search = BeamSearch(params, frozenset() if params.ignore_eos else stop)
    run_search(search, prompt)
    return search.best()


class BeamRunner(KVSimulator):
    """Tells of beams how likely their next tokens are; of all others it does what a `KVSimulator` does."""

    def likely(self, prefix: int, count: int) -> list[Choice]:
        """The most likely tokens after a prefix with this fingerprint."""
        return likely(prefix, count)

    def execute(self, batch: SchedulerOutput) -> ModelRunnerOutput:
        output = super().execute(batch)
        wanted = [part.sequence.sampling_params.logprobs if part.samples else None for part in batch.scheduled]
        if wanted.count(None) == len(wanted):
            return output
        output.logprobs = [[] for _ in batch.scheduled]
        for i, (part, count) in enumerate(zip(batch.scheduled, wanted, strict=True)):
            if count is not None:
                choices = self.likely(self._states(part.sequence)[part.start + part.num_tokens - 1], max(1, count))
                tokens, logprobs = [token for token, _ in choices], [logprob for _, logprob in choices]
                [chosen] = output.token_ids[i]
                output.logprobs[i] = [TokenLogprobs([chosen, *tokens[:count]], [logprobs[0], *logprobs[:count]], 1)]
        return output


class ChoosingRunner(BeamRunner):
    """Chooses beams itself, where it may, as a GPU does; every third time others have to move what they hold."""

    chooses_beams = True
    num_chosen = 0
    """Steps of searches."""

    def execute(self, batch: SchedulerOutput) -> ModelRunnerOutput:
        output, searches = super().execute(batch), [] if batch.run is None else batch.run.searches
        if not searches or output.logprobs is None:
            return output
        parts = {
            id(part.sequence): (part, told) for part, told in zip(batch.scheduled, output.logprobs, strict=True)
        }
        output.beams, output.beams_moved = [], self.num_chosen % 3 > 0
        for search in searches:
            self.num_chosen += 1
            standing = search.standing()
            of_beams = [parts[id(seq)] for seq, _ in standing]
            every = [
                (-(total + logprob), beam, token)
                for beam, ((_, total), (_, [told])) in enumerate(zip(standing, of_beams, strict=True))
                for token, logprob in zip(told.token_ids[1:], told.logprobs[1:], strict=True)
            ]
            ranked = [(-cost, beam, token) for cost, beam, token in sorted(every)[: search.num_choices]]
            output.beams.append(ranked)
            if output.beams_moved:
                self._move(search, [part for part, _ in of_beams], ranked)
        return output

    def _move(self, search: RunningSearch, parts: list[ScheduledSequence], ranked: list[Ranked]) -> None:
        going_on = [beam for _, beam, token in ranked if token not in search.stop_token_ids][: search.width]
        given_up = [part for beam, part in enumerate(parts) if beam not in going_on]
        forks = [parts[beam] for rank, beam in enumerate(going_on) if beam in going_on[:rank]]
        for source, place in zip(forks, given_up, strict=True):
            index, offset = divmod(source.start + 1, self.block_size)
            if offset:
                src, dst = (part.sequence.block_table[index] for part in (source, place))
                self.device[dst] = self.device[src].copy()
                self.also_move(BlockOp("copy", src, dst))
