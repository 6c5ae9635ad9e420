"""Searches at some step, with the most likely tokens of their beams."""

import random

import torch

from pagedchat.ops.sampling.choose_beams import RANKED, BeamState, pack_head
from pagedchat.ops.sampling.kernels import MAX_BEAMS, MAX_LIKELY
from pagedchat.ops.sampling.top_logprobs import TopLogprobs

HISTORY_LEN = 3
FAR_AWAY = 1 << 30
"""A row that must not be read."""


def make_case(
    widths: list[int], num_stops: int, num_other_rows: int, device: str, seed: int = 0
) -> tuple[BeamState, TopLogprobs, torch.Tensor]:
    """Beams in rows of their own, in any order; some of equal likelihood.

    Args:
        widths: of the searches.
        num_stops: tokens that end a beam.
        num_other_rows: rows that are no beams.
        device: where.
        seed: of the numbers.
    """
    source = random.Random(seed)
    num_rows = sum(widths) + num_other_rows
    rows = source.sample(range(num_rows), sum(widths))
    numbers = {"dtype": torch.int32, "device": device}
    sources = torch.full((num_rows,), -1, **numbers)
    table = torch.full((len(widths), MAX_BEAMS), FAR_AWAY, **numbers)
    sums = torch.zeros(len(widths), MAX_BEAMS, dtype=torch.float64, device=device)
    num_choices = [width * max(2, 1 + num_stops) for width in widths]
    heads = [
        pack_head(width, count, list(range(num_stops))) for width, count in zip(widths, num_choices, strict=True)
    ]
    likely = TopLogprobs.empty(num_rows, MAX_LIKELY, torch.device("cpu"))
    likely.token_ids.fill_(-7)
    for search, width in enumerate(widths):
        own, rows = rows[:width], rows[width:]
        table[search, :width] = torch.tensor(own, **numbers)
        values = sorted((-source.randrange(1, 40) / 4 for _ in range(width)), reverse=True)
        sums[search, :width] = torch.tensor(values, dtype=torch.float64)
        for row in own:
            count = num_choices[search]
            likely.token_ids[row, 1 : 1 + count] = torch.tensor(source.sample(range(2 * count), count))
            chances = sorted((-source.randrange(1, 30) / 8 for _ in range(count)), reverse=True)
            likely.logprobs[row, 1 : 1 + count] = torch.tensor(chances)
    next_tokens = torch.full((num_rows,), -7, **numbers)
    state = BeamState(sources, next_tokens, table, sums, torch.tensor(heads, **numbers))
    size = (HISTORY_LEN, len(widths) + 1, MAX_LIKELY * RANKED.itemsize)
    ranked = torch.zeros(size, dtype=torch.uint8, pin_memory=device == "cuda")
    return state, TopLogprobs(*(tensor.to(device) for tensor in likely)), ranked[:, :-1]
