"""Steps that draw from few: numbers of which every order of sums makes the same logits, and all kinds of rows."""

from dataclasses import replace
from typing import NamedTuple

import torch

from pagedchat.ops.sampling.decode_state import DecodeState
from pagedchat.ops.sampling.sample import draw_next
from pagedchat.ops.sampling.sample_rows import IN_PROMPT, SampleRow, pack_rows
from tests.ops.sampling.decode_state_case import make_state

KINDS = [
    SampleRow(temperature=0.7, top_k=20, top_p=0.8),
    SampleRow(temperature=0),
    SampleRow(top_k=1),
    SampleRow(temperature=1.5, top_k=50, seed=9),
    SampleRow(top_k=128, top_p=0.99, min_p=0.001, seed=3),
    SampleRow(temperature=0.6, top_k=20, top_p=0.95, repetition_penalty=1.1, counts_row=0),
    SampleRow(temperature=0, repetition_penalty=1.5, counts_row=0),
    SampleRow(temperature=0.9, top_k=40, presence_penalty=0.5, frequency_penalty=0.25, counts_row=0, seed=5),
    SampleRow(temperature=30.0, top_k=7),
]
"""What is drawn from few, or is the most likely token."""


class DrawCase(NamedTuple):
    """A step, on a device."""

    rows: torch.Tensor
    head: torch.Tensor
    sampling: torch.Tensor
    counts: torch.Tensor
    positions: list[int]

    def state(self) -> DecodeState:
        """Before it."""
        return make_state(self.positions, self.rows.device.type)

    def expected(self) -> tuple[DecodeState, torch.Tensor]:
        """State and counts behind it, on the CPU, by all logits."""
        logits = (self.rows.cpu().double() @ self.head.cpu().double().T).to(self.rows.dtype)
        state, counts = make_state(self.positions, "cpu"), self.counts.cpu().clone()
        sampling = self.sampling.cpu().clone()
        sampling[torch.tensor(self.positions) < 0] = pack_rows([SampleRow(stays=True)])
        state.advance(torch.zeros_like(state.token_ids))
        draw_next(state, logits, sampling, counts)
        return state, counts


def whole_numbers(*shape: int, device: str, dtype: torch.dtype, most: int, seed: int = 0) -> torch.Tensor:
    """Eighths, whose products are added up without rounding."""
    of = torch.Generator().manual_seed(seed)
    return (torch.randint(-most, most + 1, shape, generator=of) / 8).to(device, dtype)


def draw_case(
    num_seqs: int,
    vocab_size: int,
    hidden: int,
    dtype: torch.dtype,
    device: str,
    *,
    most: int = 9,
    rows: list[SampleRow] | None = None,
) -> DrawCase:
    """Rows of all kinds in turns, or of those that are given; every seventh is padding."""
    kinds = [KINDS[i % len(KINDS)] for i in range(num_seqs)] if rows is None else rows
    kinds = [replace(row, counts_row=i if row.counts_row >= 0 else -1) for i, row in enumerate(kinds)]
    counts = torch.zeros(num_seqs, vocab_size, dtype=torch.int16)
    counts[:, ::3], counts[:, 1::5] = 2, IN_PROMPT
    return DrawCase(
        rows=whole_numbers(num_seqs, hidden, device=device, dtype=dtype, most=most),
        head=whole_numbers(vocab_size, hidden, device=device, dtype=dtype, most=most, seed=1) / 8,
        sampling=pack_rows(kinds).to(device),
        counts=counts.to(device),
        positions=[-1 if i % 7 == 6 else 5 * i for i in range(num_seqs)],
    )
