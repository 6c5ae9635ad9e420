"""A short text that captured steps are tried on, and how far two ways of computing its logits may be apart."""

import torch

from pagedchat.engine.sampling_params import SamplingParams
from pagedchat.engine.sequence import Sequence

TOLERANCE = 0.1
"""Relative error of the logits. What is wrong is off by about 1; two roundings of bfloat16 stay far below."""


def trial_text(length: int, vocab_size: int, block_size: int) -> Sequence:
    """A sequence of so many tokens, whatever they are, in the first blocks of the pool."""
    sequence = Sequence(0)
    sequence.token_ids = [(i * 7919 + 11) % vocab_size for i in range(length)]
    sequence.block_table = list(range(-(-length // block_size)))
    sequence.sampling_params = SamplingParams(temperature=0)
    sequence.stop_length = length + 1
    return sequence


def relative_error(logits: torch.Tensor, expected: torch.Tensor) -> float:
    """Of `logits` `[vocab_size]`; NaN where there is one among them."""
    expected = expected.float()
    return float((logits.float() - expected).norm() / expected.norm().clamp_min(1e-9))
