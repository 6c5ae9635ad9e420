"""The quantized head: the vocabulary in 8-bit integers. By it a step finds the rows whose logit may be the best.

Tensors only, as kernels/whole_step/quantized_head.cuh lays them out and says what they are for.
"""

from dataclasses import dataclass
from math import ceil, frexp, sqrt

import torch

from pagedchat.ops.common.norm import Norm
from pagedchat.ops.screening.integers import integers_of, length_of
from pagedchat.ops.whole_step.plan import QUANTIZED_ROWS, quantized_tile_bytes

LARGEST_DIGITS = 1 << 22
"""Of an element of the input."""
_STEP = 32
_ROWS_AT_A_TIME = 1 << 12
_LEAST_LENGTH, _MOST_LENGTH = 1e-6, 1e12
"""What keeps all products of the kernel away from the ends of float32."""


@dataclass(frozen=True, slots=True)
class ScreenedHead:
    """`head` in 8-bit integers `[vocab_size, hidden]`, for inputs that come out of one norm."""

    tiles: torch.Tensor
    """`[num_tiles, quantized_tile_bytes(hidden)]`, uint8."""
    digit_scale: float
    """What the elements of an input are multiplied by: a power of two that makes `LARGEST_DIGITS`, or less, of the
    length of the longest input."""


def screen_head(head: torch.Tensor, norm: Norm) -> ScreenedHead:
    """The quantized head, on the device of `head`.

    Args:
        head: `[vocab_size, hidden]`, float16 or bfloat16.
        norm: what an input has gone through.
    """
    vocab_size, hidden = head.shape
    digit_scale = LARGEST_DIGITS / _longest(norm, hidden)
    num_tiles = ceil(vocab_size / QUANTIZED_ROWS)
    tiles = torch.zeros(num_tiles, quantized_tile_bytes(hidden), dtype=torch.uint8, device=head.device)
    for first in range(0, vocab_size, _ROWS_AT_A_TIME):
        rows = head[first : first + _ROWS_AT_A_TIME]
        to = tiles[first // QUANTIZED_ROWS : ceil((first + len(rows)) / QUANTIZED_ROWS)]
        _fill(to, *integers_of(rows), digit_scale)
    return ScreenedHead(tiles, digit_scale)


def _fill(
    tiles: torch.Tensor, integers: torch.Tensor, scales: torch.Tensor, widths: torch.Tensor, digit_scale: float
) -> None:
    """Writes `tiles` `[num_tiles, quantized_tile_bytes]` of zeros; the last one may have fewer rows."""
    num_rows, hidden = integers.shape
    rows = integers.new_zeros(len(tiles) * QUANTIZED_ROWS, hidden)
    rows[:num_rows] = integers
    # Lane (g, q) has elements 8q to 8q + 7 of a step, of rows g and g + 8, four of either row at a time.
    pieces = rows.view(len(tiles), QUANTIZED_ROWS // 16, 2, 8, hidden // _STEP, 4, 2, 4).permute(
        0, 1, 4, 3, 5, 6, 2, 7
    )
    tiles[:, : QUANTIZED_ROWS * hidden] = pieces.reshape(len(tiles), -1).view(torch.uint8)
    constants = torch.zeros(len(tiles) * QUANTIZED_ROWS, 2, dtype=torch.bfloat16, device=rows.device)
    constants[:num_rows, 0] = (scales / digit_scale).to(torch.bfloat16)
    constants[:num_rows, 1] = _rounded_up(widths)
    tiles[:, QUANTIZED_ROWS * hidden :] = constants.view(torch.uint8).view(len(tiles), -1)


def _longest(norm: Norm, hidden: int) -> float:
    """A power of two that no row is longer than which `norm` has made, rounded as it may be."""
    scale, shift = norm.weight.float(), norm.bias
    most = sqrt(hidden) * float(scale.abs().max()) + (0.0 if shift is None else float(length_of(shift.double())))
    return 2.0 ** frexp(min(max(_LEAST_LENGTH, most * 1.02), _MOST_LENGTH))[1]


def _rounded_up(values: torch.Tensor) -> torch.Tensor:
    """To bfloat16, of numbers that are not below zero."""
    bits = values.view(torch.int32) + 0xFFFF
    return (bits >> 16).to(torch.int16).view(torch.bfloat16)
