"""How the tokens of a batch are chosen, inside the captured step."""

from collections.abc import Iterable
from typing import Literal

from pagedchat.engine.output import ScheduledSequence
from pagedchat.engine.sequence import Sequence
from pagedchat.runtime.step.sampler import SamplingRow

Choice = Literal["greedy", "drawn"]
"""Which tokens a step goes on with: the most likely ones, or those that the sampling op draws (`ops.sample`); with
penalties the most likely ones are its business too."""


def sampling_rows(parts: list[ScheduledSequence]) -> list[SamplingRow]:
    """What the sampler wants to know of a batch."""
    return rows_of([part.sequence for part in parts])


def rows_of(sequences: list[Sequence]) -> list[SamplingRow]:
    """What the sampler wants to know of some sequences."""
    return [SamplingRow(seq.sampling_params, seq.token_ids, seq.seed, seq.num_prompt_tokens) for seq in sequences]


def choice_for(sequences: Iterable[Sequence]) -> Choice:
    """How their tokens are chosen together."""
    # Of many sequences most share the same object.
    params = {id(seq.sampling_params): seq.sampling_params for seq in sequences}.values()
    return "greedy" if all(each.greedy and not each.penalises for each in params) else "drawn"
