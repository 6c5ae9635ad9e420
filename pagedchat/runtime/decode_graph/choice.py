"""How the tokens of a batch are chosen: on the device inside the captured step, or by the host from its logits."""

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


def choice_for(rows: list[SamplingRow]) -> Choice:
    """Who chooses. Penalties go by all tokens of a sequence, which the captured steps do not keep."""
    if any(row.penalised for row in rows):
        return "host"
    return "greedy" if all(row.params.greedy for row in rows) else "drawn"
