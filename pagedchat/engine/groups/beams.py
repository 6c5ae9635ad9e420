"""A beam search on sequences: who goes on with which token, who is forked, who gives its blocks back.

The arithmetic is `search`'s, blocks are the engine's. A step of the search has three parts:

1. *Taking in*: each beam that was in the batch has its most likely next tokens. When all have them, the search says
   who survives.
2. *Going on in place*: while the step's tokens are committed, the first continuation of every beam that was in the
   batch becomes its next token, as if it had been sampled.
3. *Carrying out*, after the step is told: beams without a continuation are closed, the other continuations are
   forks, which share all full blocks. Where all beams have run, each fork takes the place of one that is closed,
   and its last block (`place`): the next batch is the one before once more, and a runner may do all of this by
   itself, before the engine does (`DecodeRun.searches`).

Where blocks are scarce the beams of a search do not all run in the same step. Who has its next tokens before the
others is parked meanwhile and may lose its blocks like any parked sequence; they are of no use before the others
are there. So a search gets on as long as each of its beams by itself fits into the pool.
"""

from collections.abc import Mapping
from collections.abc import Sequence as Items

import msgspec

from pagedchat.cache_events import BeamsScored, SequenceGrouped
from pagedchat.engine.groups.beam_params import BeamSearchParams
from pagedchat.engine.groups.group import SequenceGroup
from pagedchat.engine.groups.search import BeamSearch, Choice, Continuation, Hypothesis
from pagedchat.engine.groups.verbs import Verbs
from pagedchat.engine.output import ModelRunnerOutput, Ranked
from pagedchat.engine.sampling_params import SamplingParams
from pagedchat.engine.sequence import Sequence


class Beam:
    """One that lives."""

    __slots__ = ("choices", "next_tokens", "place", "sequence")

    def __init__(self, sequence: Sequence) -> None:
        self.sequence = sequence
        self.choices: Items[Choice] | None = None
        """Its most likely next tokens, once it was run."""
        self.place = -1
        """Of its part in the present batch; -1: it has none."""
        self.next_tokens: list[int] = []
        """With which it goes on, the first in place and the others as forks; none: it is given up."""


class BeamGroup(SequenceGroup):
    """One search.

    Args:
        first: holds the prompt, and was just asked for `sampling_params`.
        params: of the search.
        stop_token_ids: those that end a beam.
        sampling_params: with which every beam runs.
    """

    def __init__(
        self,
        first: Sequence,
        params: BeamSearchParams,
        search: BeamSearch,
        sampling_params: SamplingParams,
    ) -> None:
        super().__init__("beams", first.seq_id)
        self.params = params
        self.search = search
        self.num_cached_tokens = 0
        """Of the prompt; known once it was run."""
        self.is_over = False
        """Whether all beams are closed."""
        self.error: BaseException | None = None
        """What ended it before its time."""
        self._first = first
        self._num_prompt_tokens = len(first)
        self._sampling_params = sampling_params
        self._beams = {first.seq_id: Beam(first)}
        """Those that live, in the order of the search."""
        self._order: list[tuple[Beam, int]] = []
        """The next beams as the search has them, decided and not carried out: whose, and which of its tokens."""
        self._moved = False
        """Whether the runner has copied what these need."""

    @property
    def prompt_token_ids(self) -> list[int]:
        """The prompt."""
        return self._first.token_ids[: self._num_prompt_tokens]

    def hypotheses(self) -> list[Hypothesis]:
        """What was found, the best first."""
        return self.search.best()

    @property
    def width(self) -> int:
        """See `RunningSearch`."""
        return self.params.beam_width

    @property
    def num_choices(self) -> int:
        """See `RunningSearch`."""
        return self.search.num_choices

    @property
    def stop_token_ids(self) -> frozenset[int]:
        """See `RunningSearch`."""
        return self.search.stop_token_ids

    def standing(self) -> list[tuple[Sequence, float]]:
        """See `RunningSearch`."""
        sums = [cum_logprob for _, cum_logprob in self.search.beams]
        return list(zip([beam.sequence for beam in self._beams.values()], sums, strict=True))

    def are_placed(self, place_of: Mapping[int, int]) -> bool | None:
        """Whether all beams are in batches from now on, at these places by `id` of sequence; None: some of them."""
        places = [place_of.get(id(beam.sequence), -1) for beam in self._beams.values()]
        if max(places) < 0:
            return False
        if min(places) < 0 or len(places) < self.width:
            return None
        for beam, place in zip(self._beams.values(), places, strict=True):
            beam.place, beam.choices = place, None
        return True

    def forget_places(self) -> None:
        """Another batch: who is in it will be told."""
        for beam in self._beams.values():
            beam.place = -1

    def take_in(self, sequence: Sequence, place: int, choices: Items[Choice]) -> None:
        """A beam was run as part `place` of the batch."""
        beam = self._beams[sequence.seq_id]
        beam.choices, beam.place = choices, place

    def decide(self, token_ids: list[list[int]]) -> None:
        """After all of the batch were taken in: the search's next step, if all beams are there.

        Args:
            token_ids: of the batch; those who go on in place get theirs here.
        """
        beams = list(self._beams.values())
        choices = [beam.choices for beam in beams if beam.choices is not None]
        if len(choices) < len(beams):
            return
        if len(self.search.beams[0][0]) == 0:
            self.num_cached_tokens = self._first.num_cached_tokens
        self._moved = False
        self._note(self.search.advance(choices), token_ids)

    def decide_by(self, ranked: Items[Ranked], output: ModelRunnerOutput, *, moved: bool) -> None:
        """The search's next step, for which a runner has ranked continuations; all beams have their places.

        Args:
            ranked: the best ones, the best first.
            output: of the batch; those who go on in place get their tokens here, and nothing else is kept of beams.
            moved: whether the runner has copied what forks need.
        """
        for beam in self._beams.values():
            output.token_ids[beam.place] = []
            if output.logprobs is not None:
                output.logprobs[beam.place] = []
        self._moved = moved
        self._note(self.search.advance_by(ranked), output.token_ids)

    def _note(self, continuations: Items[Continuation], token_ids: list[list[int]]) -> None:
        """Who goes on with what; in place who is in the batch."""
        beams = list(self._beams.values())
        for index, token_id in continuations:
            beam = beams[index]
            self._order.append((beam, len(beam.next_tokens)))
            beam.next_tokens.append(token_id)
            if len(beam.next_tokens) == 1 and beam.place >= 0:
                token_ids[beam.place] = [token_id]

    def carry_out(self, verbs: Verbs) -> None:
        """After the step was told."""
        if verbs.failures:
            self.error = next(filter(None, map(verbs.failures.get, self._beams)), None)
        if self.error is not None or self.search.is_over:
            self.end(verbs)
        elif self._order:
            self._live_on(self._in_place(verbs) if self._can_stay else self._anew(verbs))
            verbs.tell(BeamsScored(list(self._beams), [cum_logprob for _, cum_logprob in self.search.beams]))
        else:
            self._rest(verbs)

    def end(self, verbs: Verbs) -> None:
        """Close all beams."""
        for seq_id in self._beams:
            verbs.close(seq_id, "ended")
        self._beams.clear()
        self.seq_ids.clear()
        self.is_over = True

    @property
    def _can_stay(self) -> bool:
        """Whether there are as many beams as before, all of which were run in this step."""
        beams = self._beams.values()
        return len(beams) == len(self._order) and all(
            beam.place >= 0 and beam.sequence.status == "running" for beam in beams
        )

    def _in_place(self, verbs: Verbs) -> list[Beam]:
        """The next beams; forks take the places of those that are given up."""
        given_up = iter([beam for beam in self._beams.values() if not beam.next_tokens])
        beams = []
        for beam, index in self._order:
            if index == 0:
                beams.append(beam)
                continue
            place, token_id = next(given_up), beam.next_tokens[index]
            verbs.fork_into(beam.sequence.seq_id, place.sequence.seq_id, token_id, moved=self._moved)
            beams.append(place)
        return beams

    def _anew(self, verbs: Verbs) -> list[Beam]:
        """The next beams, where there were fewer, or not all of them have run: forks wait for their turn."""
        for beam in self._beams.values():
            if not beam.next_tokens:
                verbs.close(beam.sequence.seq_id, "pruned")
        beams = [self._continued(verbs, beam, index) for beam, index in self._order]
        for beam, index in self._order:
            if index == 0 and beam.place < 0:  # not before it was forked
                self._extend(verbs, beam.sequence, beam.next_tokens[0])
        return beams

    def _live_on(self, beams: list[Beam]) -> None:
        """These are the beams, with nothing decided."""
        self._order = []
        self._beams = {beam.sequence.seq_id: beam for beam in beams}
        self.seq_ids[:] = self._beams
        for beam in beams:
            beam.choices, beam.next_tokens = None, []

    def _continued(self, verbs: Verbs, beam: Beam, index: int) -> Beam:
        """The beam itself, or a fork of it, which goes on with another token."""
        if index == 0:
            return beam
        seq_id, length, token_id = beam.sequence.seq_id, self._length, beam.next_tokens[index]
        if beam.place >= 0:
            fork = verbs.fork(seq_id, length=length, token_ids=(token_id,), grouped=True)
        else:
            fork = verbs.fork(seq_id, grouped=True)
            self._extend(verbs, verbs.sequences[fork], token_id)
        return Beam(verbs.sequences[fork])

    @property
    def _length(self) -> int:
        """Tokens of every beam before those that were decided last."""
        return self._num_prompt_tokens + len(self.search.beams[0][0]) - 1

    def _extend(self, verbs: Verbs, sequence: Sequence, token_id: int) -> None:
        verbs.extend(sequence.seq_id, [token_id], self._sampling_params)
        sequence.num_prompt_tokens = self._num_prompt_tokens

    def _rest(self, verbs: Verbs) -> None:
        """Others are not there yet: those that are can do without their blocks."""
        for beam in self._beams.values():
            if beam.choices is not None:
                verbs.stop(beam.sequence.seq_id, "length")


def begin_search(
    verbs: Verbs, prompt_token_ids: list[int], params: BeamSearchParams, search: BeamSearch, for_seq_id: int
) -> BeamGroup:
    """The first beam, which is to compute the prompt.

    Raises:
        RequestError: as for `extend`; nothing has changed then.
    """
    sampling_params = SamplingParams(temperature=0.0, max_tokens=None, ignore_eos=True)
    msgspec.structs.force_setattr(sampling_params, "logprobs", search.num_choices)  # more than anybody may ask for
    seq_id = verbs.open(for_seq_id=for_seq_id)
    try:
        verbs.extend(seq_id, prompt_token_ids, sampling_params)
    except BaseException:
        verbs.close(seq_id)
        raise
    first = verbs.sequences[seq_id]
    group = first.group = BeamGroup(first, params, search, sampling_params)
    verbs.tell(SequenceGrouped(seq_id, group.group_id, "beams", params.beam_width))
    return group
