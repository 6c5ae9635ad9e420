"""The cases of `sanitize_kernels` that choose among beams and move what they hold."""

from itertools import islice

import torch

from pagedchat.ops.cache.move_beams import move_beams
from pagedchat.ops.sampling.choose_beams import RANKED, BeamState, choose_beams, pack_head
from pagedchat.ops.sampling.decode_state import DecodeState
from pagedchat.ops.sampling.kernels import MAX_BEAMS, MAX_LIKELY
from pagedchat.ops.sampling.top_logprobs import TopLogprobs
from tools.sanitize_case import Tensors, index, on_both

BLOCK_SIZE, NUM_BLOCKS, MAX_BLOCKS = 8, 40, 5
WIDTHS = (MAX_BEAMS, 4, 1)


def beam_cases() -> list[bool]:
    """Searches of several widths with tokens that end beams; rows that end inside of a block and with it."""
    num_rows = sum(WIDTHS)
    heads = [pack_head(width, 2 * width, [0, 1][: width - 1]) for width in WIDTHS]
    rows = torch.full((len(WIDTHS), MAX_BEAMS), -1, dtype=torch.int32)
    own = iter(torch.randperm(num_rows).tolist())
    for search, width in enumerate(WIDTHS):
        rows[search, :width] = torch.tensor(list(islice(own, width)))
    inputs = [
        index(*[-1] * num_rows),
        index(*[-1] * num_rows),
        rows,
        torch.randn(len(WIDTHS), MAX_BEAMS, dtype=torch.float64).sort(descending=True).values,
        torch.tensor(heads, dtype=torch.int32),
        torch.stack([torch.randperm(3 * MAX_LIKELY, dtype=torch.int32)[: MAX_LIKELY + 1] for _ in range(num_rows)]),
        torch.randn(num_rows, MAX_LIKELY + 1).sort(descending=True).values,
    ]
    results = [on_both(f"choose_beams, {len(WIDTHS)} searches", inputs, _choose)]
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


def _choose(t: Tensors) -> Tensors:
    state, likely = BeamState(*t[:5]), TopLogprobs(t[5], t[6], t[0])
    ranked = torch.zeros(2, len(WIDTHS), MAX_LIKELY * RANKED.itemsize, dtype=torch.uint8, device=t[0].device)
    choose_beams(state, likely, ranked, torch.ones_like(t[0][:1]))
    return [*t[:4], ranked]


def _move(t: Tensors) -> Tensors:
    cache, token_ids, positions, tables, sources, next_tokens = t
    nothing = torch.zeros(1, dtype=torch.int32, device=cache.device)
    state = DecodeState(token_ids, positions, positions + 1, tables, nothing, nothing.view(1, 1), nothing)
    move_beams(cache, state, sources, next_tokens, BLOCK_SIZE)
    return [cache, token_ids, tables]
