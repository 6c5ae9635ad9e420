"""How the tokens of a batch are chosen: on the device inside the captured step, or by the host from its logits."""

from collections.abc import Iterable
from typing import Literal

from pagedchat.engine.output import ScheduledSequence
from pagedchat.engine.sequence import Sequence
from pagedchat.runtime.sampler import SamplingRow

Choice = Literal["greedy", "drawn", "host"]
"""Which tokens a step goes on with: the most likely ones, drawn ones, or those the host chooses from the logits."""


def sampling_rows(parts: list[ScheduledSequence]) -> list[SamplingRow]:
    """What the sampler wants to know of a batch."""
    return rows_of([part.sequence for part in parts])


def rows_of(sequences: list[Sequence]) -> list[SamplingRow]:
    """What the sampler wants to know of some sequences."""
    return [SamplingRow(seq.sampling_params, seq.token_ids, seq.seed) for seq in sequences]


def choice_for(sequences: Iterable[Sequence]) -> Choice:
    """Who chooses. Penalties go by all tokens of a sequence, which the captured steps do not keep."""
    # Of many sequences most share the same object.
    params = {id(seq.sampling_params): seq.sampling_params for seq in sequences}.values()
    if any(each.penalises for each in params):
        return "host"
    return "greedy" if all(each.greedy for each in params) else "drawn"
