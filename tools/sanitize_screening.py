"""Screened vocabularies for `sanitize_kernels`, which says how kernels are checked."""

from dataclasses import fields
from functools import partial

import torch

from pagedchat.ops.common.norm import Norm
from pagedchat.ops.sampling.decode_state import DecodeState
from pagedchat.ops.sampling.sample_rows import SampleRow, pack_rows
from pagedchat.ops.screening.screen import screen_of
from pagedchat.ops.screening.screened_argmax import screened_argmax
from pagedchat.ops.screening.screened_draw import screened_draw
from tools.sanitize_case import Tensors, on_both, random_tensor

HISTORY_LEN = 3
WIDTH, VOCAB_SIZE = 200, 5000
"""Neither whole chunks nor whole units, of which some thread blocks of an H200 have one and some none."""


def screening_cases() -> list[bool]:
    """Batches of all numbers of columns, normed and not, with a row of padding in those of several; the most likely
    tokens, and drawn ones."""
    results = []
    for num_seqs in (1, 9, 30, 64):
        tensors = [
            random_tensor(num_seqs, WIDTH),
            random_tensor(VOCAB_SIZE, WIDTH) / 14,
            1 + random_tensor(WIDTH) / 4,
            torch.arange(num_seqs, dtype=torch.int32) - int(num_seqs > 1),
        ]
        for normed in (False, True):
            about = "rms" if normed else "no norm"
            results.append(on_both(f"screened_argmax {num_seqs} {about}", tensors, partial(_next, normed=normed)))
            # Of other logits another token may be drawn: weights are whole eighths, whose sums are what they are.
        whole = [torch.round(tensor * 8) / 8 for tensor in tensors[:2]]
        results.append(on_both(f"screened_draw {num_seqs}", [*whole, tensors[3]], _drawn))
    return results


def _next(t: Tensors, *, normed: bool) -> Tensors:
    rows, head, weight, positions = t
    state = _state_of(positions.clone())
    screened_argmax(state, rows, screen_of(head), norm=Norm("rms", weight, None, 1e-6) if normed else None)
    return [getattr(state, field.name) for field in fields(state)]


def _drawn(t: Tensors) -> Tensors:
    rows, head, positions = t
    state = _state_of(positions.clone())
    counts = torch.zeros(1, VOCAB_SIZE, dtype=torch.int16, device=rows.device)
    kinds = [
        SampleRow(top_k=20, top_p=0.9),
        SampleRow(top_k=128, seed=1),
        SampleRow(top_k=5, repetition_penalty=1.2, counts_row=0),
        SampleRow(top_k=4000, seed=2),
    ]
    sampling = pack_rows(kinds[i % len(kinds)] for i in range(len(rows))).to(rows.device)
    screened_draw(state, rows, screen_of(head), sampling, counts)
    return [*(getattr(state, field.name) for field in fields(state)), counts]


def _state_of(positions: torch.Tensor) -> DecodeState:
    num_seqs = len(positions)
    zeros = partial(torch.zeros, dtype=torch.int32, device=positions.device)
    return DecodeState(
        token_ids=zeros(num_seqs),
        positions=positions,
        seq_lens=positions + 1,
        block_tables=zeros(num_seqs, 1),
        step=zeros(1),
        history=zeros(HISTORY_LEN, num_seqs),
        arrivals=zeros(1),
    )
