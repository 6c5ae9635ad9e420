"""A beam search on sequences: who goes on with which token, who is forked, who gives its blocks back.

The arithmetic is `search`'s, blocks are the engine's. A step of the search has three parts:

1. *Taking in*: each beam that was in the batch has its most likely next tokens. When all have them, the search says
   who survives.
2. *Going on in place*: while the step's tokens are committed, the first continuation of every beam that was in the
   batch becomes its next token, as if it had been sampled.
3. *Carrying out*, after the step is told: beams without a continuation are closed, the other continuations are
   forks, which share all blocks and copy the last one when they write to it.

Where blocks are scarce the beams of a search do not all run in the same step. Who has its next tokens before the
others is parked meanwhile and may lose its blocks like any parked sequence; they are of no use before the others
are there. So a search gets on as long as each of its beams by itself fits into the pool.
"""

from collections.abc import Sequence as Items

import msgspec

from pagedchat.cache_events import SequenceGrouped
from pagedchat.engine.groups.beam_params import BeamSearchParams
from pagedchat.engine.groups.group import SequenceGroup
from pagedchat.engine.groups.search import BeamSearch, Choice, Hypothesis
from pagedchat.engine.groups.verbs import Verbs
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

    @property
    def prompt_token_ids(self) -> list[int]:
        """The prompt."""
        return self._first.token_ids[: self._num_prompt_tokens]

    def hypotheses(self) -> list[Hypothesis]:
        """What was found, the best first."""
        return self.search.best()

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
        for index, token_id in self.search.advance(choices):
            beam = beams[index]
            self._order.append((beam, len(beam.next_tokens)))
            beam.next_tokens.append(token_id)
            if len(beam.next_tokens) == 1 and beam.place >= 0:
                token_ids[beam.place] = [token_id]

    def carry_out(self, verbs: Verbs) -> None:
        """After the step was told."""
        self.error = next(filter(None, map(verbs.failures.get, self._beams)), None)
        if self.error is not None or self.search.is_over:
            self.end(verbs)
        elif self._order:
            self._go_on(verbs)
        else:
            self._rest(verbs)

    def end(self, verbs: Verbs) -> None:
        """Close all beams."""
        for seq_id in self._beams:
            verbs.close(seq_id, "ended")
        self._beams.clear()
        self.seq_ids.clear()
        self.is_over = True

    def _go_on(self, verbs: Verbs) -> None:
        for beam in self._beams.values():
            if not beam.next_tokens:
                verbs.close(beam.sequence.seq_id, "pruned")
        beams = [self._continued(verbs, beam, index) for beam, index in self._order]
        for beam, index in self._order:
            if index == 0 and beam.place < 0:  # not before it was forked
                self._extend(verbs, beam.sequence, beam.next_tokens[0])
        self._order = []
        self._beams = {beam.sequence.seq_id: beam for beam in beams}
        self.seq_ids[:] = self._beams
        for beam in beams:
            beam.choices, beam.place, beam.next_tokens = None, -1, []

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
            beam.place = -1
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
