"""Screened vocabularies for `sanitize_kernels`, which says how kernels are checked."""

from dataclasses import fields
from functools import partial

import torch

from pagedchat.ops.common.norm import Norm
from pagedchat.ops.sampling.decode_state import DecodeState
from pagedchat.ops.screening.screen import screen_of
from pagedchat.ops.screening.screened_argmax import screened_argmax
from tools.sanitize_case import Tensors, on_both, random_tensor

HISTORY_LEN = 3
WIDTH, VOCAB_SIZE = 200, 5000
"""Neither whole chunks nor whole units, of which some thread blocks of an H200 have one and some none."""


def screening_cases() -> list[bool]:
    """Batches of all numbers of columns, normed and not, with a row of padding in those of several."""
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
    return results


def _next(t: Tensors, *, normed: bool) -> Tensors:
    rows, head, weight, positions = t
    state = _state_of(positions.clone())
    screened_argmax(state, rows, screen_of(head), norm=Norm("rms", weight, None, 1e-6) if normed else None)
    return [getattr(state, field.name) for field in fields(state)]


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
