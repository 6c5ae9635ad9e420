"""Whose next token is to be chosen, and what that goes by. Data only; knows sequences, no logits."""

from dataclasses import dataclass

from pagedchat.engine.sampling_params import SamplingParams
from pagedchat.engine.sequence import Sequence


@dataclass(frozen=True, slots=True)
class SamplingRow:
    """Whose next token is to be chosen."""

    params: SamplingParams
    token_ids: list[int]
    """All tokens so far, prompt and reply."""
    seed: int
    num_prompt_tokens: int = 0
    """Of `token_ids`; the others are the reply."""
    stop_token_ids: frozenset[int] = frozenset()
    """With which it would end."""
    sequence: Sequence | None = None
    """Whose they are, where a form follows its reply."""

    @property
    def penalised(self) -> bool:
        """Whether tokens that occurred already become less likely."""
        return self.params.penalises


def rows_of(sequences: list[Sequence]) -> list[SamplingRow]:
    """What is to be known of some sequences."""
    return [
        SamplingRow(seq.sampling_params, seq.token_ids, seq.seed, seq.num_prompt_tokens, seq.stop_token_ids, seq)
        for seq in sequences
    ]
