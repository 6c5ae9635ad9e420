"""Searches at some step, with the logits of their beams."""

import random
from typing import NamedTuple

import torch

from pagedchat.ops.sampling.choose_beams import RANKED, BeamState, LikelyTokens, pack_head
from pagedchat.ops.sampling.kernels import MAX_BEAMS, MAX_LIKELY

HISTORY_LEN = 3
FAR_AWAY = 1 << 30
"""A row that must not be read."""
NUMBER = 5
"""Of the step."""


class BeamCase(NamedTuple):
    """What `choose_beams` takes."""

    state: BeamState
    logits: torch.Tensor
    counts: torch.Tensor
    likely: LikelyTokens
    ranked: torch.Tensor
    step: torch.Tensor


def make_case(
    widths: list[int],
    num_stops: int,
    num_other_rows: int,
    device: str,
    seed: int = 0,
    dtype: torch.dtype = torch.float32,
) -> BeamCase:
    """Beams in rows of their own, in any order; many tokens are as likely as others, and so are some beams.

    Args:
        widths: of the searches.
        num_stops: tokens that end a beam.
        num_other_rows: rows that are no beams.
        device: where.
        seed: of the numbers.
        dtype: of logits.
    """
    source = random.Random(seed)
    num_rows = sum(widths) + num_other_rows
    rows = source.sample(range(num_rows), sum(widths))
    numbers = {"dtype": torch.int32, "device": device}
    table = torch.full((len(widths), MAX_BEAMS), FAR_AWAY, **numbers)
    sums = torch.zeros(len(widths), MAX_BEAMS, dtype=torch.float64, device=device)
    num_choices = [width * max(2, 1 + num_stops) for width in widths]
    heads = [
        pack_head(width, count, list(range(num_stops))) for width, count in zip(widths, num_choices, strict=True)
    ]
    vocab_size = 2 * max(num_choices) + 3
    counts = torch.full((num_rows,), -1, **numbers)
    logits = torch.full((num_rows, vocab_size), torch.inf, dtype=dtype)
    for search, width in enumerate(widths):
        own, rows = rows[:width], rows[width:]
        table[search, :width] = torch.tensor(own, **numbers)
        values = sorted((-source.randrange(1, 40) / 4 for _ in range(width)), reverse=True)
        sums[search, :width] = torch.tensor(values, dtype=torch.float64)
        for i, row in enumerate(own):
            like = source.choice([None, *own[:i]])
            fresh = torch.tensor([source.randrange(1, 60) / 8 for _ in range(vocab_size)])
            logits[row] = fresh if like is None else logits[like]
            counts[row] = num_choices[search]
    state = BeamState(
        sources=torch.full((num_rows,), -1, **numbers),
        next_tokens=torch.full((num_rows,), -7, **numbers),
        rows=table,
        sums=sums,
        heads=torch.tensor(heads, **numbers),
        arrivals=torch.zeros(1, **numbers),
    )
    likely = LikelyTokens.empty(num_rows, MAX_LIKELY, torch.device(device))
    size = (HISTORY_LEN, len(widths) + 1, MAX_LIKELY * RANKED.itemsize)
    ranked = torch.zeros(size, dtype=torch.uint8, pin_memory=device == "cuda")
    step = torch.full((1,), NUMBER + 1, **numbers)
    return BeamCase(state, logits.to(device), counts, likely, ranked[:, :-1], step)
