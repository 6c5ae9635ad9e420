"""The cases of `sanitize_kernels` that choose among beams and move what they hold."""

from itertools import islice

import torch

from pagedchat.ops.cache.move_beams import move_beams
from pagedchat.ops.sampling.choose_beams import RANKED, BeamState, LikelyTokens, choose_beams, pack_head
from pagedchat.ops.sampling.decode_state import DecodeState
from pagedchat.ops.sampling.kernels import MAX_BEAMS, MAX_LIKELY
from tools.sanitize_case import Tensors, index, on_both, random_tensor

BLOCK_SIZE, NUM_BLOCKS, MAX_BLOCKS = 8, 40, 5
MANY, FEW = (MAX_BEAMS, 4, 1), (4, 1)
"""Beams of the searches of a step: rows with a thread block each, and rows that several share."""
VOCAB_SIZE = 3_003


def beam_cases() -> list[bool]:
    """Searches of several widths with tokens that end beams; rows that end inside of a block and with it."""
    results = [on_both(f"choose_beams, {sum(widths)} rows", _searches(widths), _choose) for widths in (MANY, FEW)]
    tables = torch.randperm(NUM_BLOCKS, dtype=torch.int32)[: 6 * MAX_BLOCKS].view(6, MAX_BLOCKS)
    for position in (19, 24):
        moved = [
            torch.randn(3, 2, NUM_BLOCKS, BLOCK_SIZE, 2, 68),
            index(*[1] * 6),
            index(*[position] * 4, 5, -1),
            tables,
            index(1, 1, 1, 3, -1, -1),
            index(*range(40, 46)),
        ]
        results.append(on_both(f"move_beams at {position}", moved, _move))
    return results


def _searches(widths: tuple[int, ...]) -> Tensors:
    """A `BeamState`, logits, and how many tokens of each row are ranked, of the last one none."""
    num_rows = sum(widths) + 1
    heads = [pack_head(width, 2 * width, [0, 1][: width - 1]) for width in widths]
    rows = torch.full((len(widths), MAX_BEAMS), -1, dtype=torch.int32)
    own, counts = iter(torch.randperm(num_rows - 1).tolist()), index(*[-1] * num_rows)
    for search, width in enumerate(widths):
        rows[search, :width] = torch.tensor(list(islice(own, width)))
        counts[rows[search, :width].long()] = 2 * width
    return [
        index(*[-1] * num_rows),
        index(*[-1] * num_rows),
        rows,
        torch.randn(len(widths), MAX_BEAMS, dtype=torch.float64).sort(descending=True).values,
        torch.tensor(heads, dtype=torch.int32),
        index(0),
        random_tensor(num_rows, VOCAB_SIZE),
        counts,
    ]


def _choose(t: Tensors) -> Tensors:
    """Sums of what was ranked apart from its beams and tokens: they are rounded otherwise on a GPU."""
    state, likely = BeamState(*t[:6]), LikelyTokens.empty(len(t[6]), MAX_LIKELY, t[6].device)
    size = (2, len(t[2]), MAX_LIKELY * RANKED.itemsize)
    ranked = torch.zeros(size, dtype=torch.uint8, device=t[6].device)
    choose_beams(state, t[6], t[7], likely, ranked, torch.ones_like(t[0][:1]))
    numbers = ranked.view(torch.int32)
    parts = ranked.view(torch.float64)[..., ::2], numbers[..., 2::4], numbers[..., 3::4]
    return [*t[:4], t[5], *likely, *parts]


def _move(t: Tensors) -> Tensors:
    cache, token_ids, positions, tables, sources, next_tokens = t
    nothing = torch.zeros(1, dtype=torch.int32, device=cache.device)
    state = DecodeState(token_ids, positions, positions + 1, tables, nothing, nothing.view(1, 1), nothing)
    move_beams(cache, state, sources, next_tokens, BLOCK_SIZE)
    return [cache, token_ids, tables]
