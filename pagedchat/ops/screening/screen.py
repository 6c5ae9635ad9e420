"""The vocabulary in 8-bit integers, as kernels/screening lays it out and says what it is for. Tensors only."""

from dataclasses import dataclass

import torch

from pagedchat.ops.screening.integers import integers_of, length_of
from pagedchat.ops.screening.plan import CHUNK, UNIT_ROWS, num_chunks, num_units

_UNITS_AT_A_TIME = 64
_PIECE = 16
"""Bytes that change places in a row of a chunk."""


@dataclass(frozen=True, slots=True)
class Screen:
    """A head `[vocab_size, hidden]` with its copy, on its device."""

    head: torch.Tensor
    """Float16 or bfloat16, contiguous."""
    units: torch.Tensor
    """`[num_units, num_chunks, UNIT_ROWS, CHUNK]`, int8."""
    rows: torch.Tensor
    """`[num_units, UNIT_ROWS, 4]`, float32: `RowBounds` of kernels/screening/bounds.cuh."""


def screen_of(head: torch.Tensor) -> Screen:
    """Make the copy.

    Args:
        head: `[vocab_size, hidden]`, float16 or bfloat16.
    """
    vocab_size, hidden = head.shape
    count, chunks = num_units(vocab_size), num_chunks(hidden)
    units = torch.zeros(count, chunks, UNIT_ROWS, CHUNK, dtype=torch.int8, device=head.device)
    bounds = torch.zeros(count, UNIT_ROWS, 4, dtype=torch.float32, device=head.device)
    for first in range(0, count, _UNITS_AT_A_TIME):
        last = min(first + _UNITS_AT_A_TIME, count)
        rows = head[first * UNIT_ROWS : last * UNIT_ROWS]
        _fill(units[first:last], bounds[first:last], rows)
    return Screen(head.contiguous(), units, bounds)


def _fill(units: torch.Tensor, bounds: torch.Tensor, rows: torch.Tensor) -> None:
    """Of some units: `[count, num_chunks, UNIT_ROWS, CHUNK]`, `[count, UNIT_ROWS, 4]`, of zeros."""
    integers, scales, widths = integers_of(rows)
    all_rows = integers.new_zeros(len(units) * UNIT_ROWS, units.shape[1] * CHUNK)
    all_rows[: len(rows), : rows.shape[1]] = integers
    chunks = all_rows.view(len(units), UNIT_ROWS, -1, CHUNK).transpose(1, 2)
    units.copy_(_swizzled(chunks))
    flat = bounds.view(-1, 4)[: len(rows)]
    flat[:, 0], flat[:, 1] = scales, widths
    flat[:, 2] = length_of(integers.float()) * scales * 1.001


def _swizzled(rows: torch.Tensor) -> torch.Tensor:
    """`[..., num_rows, CHUNK]`: piece `p` of row `r` where piece `p ^ r % 8` was, which is its own inverse."""
    pieces = rows.reshape(*rows.shape[:-1], -1, _PIECE)
    number = torch.arange(pieces.shape[-2], device=rows.device)
    row = torch.arange(pieces.shape[-3], device=rows.device)
    places = (number[None, :] ^ (row[:, None] % len(number)))[..., None]
    return pieces.gather(-2, places.expand(pieces.shape)).flatten(-2)
