"""Rows of a vocabulary as a scale and 8-bit integers, and how far off a product with those can be."""

import torch

_LARGEST = 127
_LOST_IN_SUMS = 2.0**-22
"""Of a sum for each of its products, relative to the sum of their magnitudes: twice what tensor cores cut off."""
_LEAST_WIDTH, _LEAST_SCALE, _MOST_SCALE = 1e-24, 1e-29, 1e18
"""What keeps all products of the kernels away from the ends of float32."""


def integers_of(rows: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Integers and scales that make `rows` `[num_rows, hidden]`, and how far they may lead from a product with it.

    Returns:
        `[num_rows, hidden]` int8; scales `[num_rows]` float32, of which bfloat16 holds all; widths `[num_rows]`
        float32: a product with x that is summed up in float32 differs from scale * (integers . x) by less than
        width * |x|; infinite for rows that have elements beyond all measure.
    """
    exact = rows.float()
    scales = (exact.abs().amax(dim=1) / _LARGEST).to(torch.bfloat16).float()
    scales = torch.where(scales < _LEAST_SCALE, torch.zeros_like(scales), scales)
    # In units of the scale no square is too large or too small for a float.
    steps = torch.where(scales > 0, scales, torch.ones_like(scales))
    units = exact / steps[:, None]
    integers = torch.where(scales[:, None] > 0, units.round().clamp(-_LARGEST, _LARGEST), torch.zeros_like(units))
    lengths = length_of(units - integers) + rows.shape[1] * _LOST_IN_SUMS * length_of(units)
    widths = lengths * steps * 1.001 + _LEAST_WIDTH
    finite = scales < _MOST_SCALE
    widths = torch.where(finite, widths, torch.full_like(widths, float("inf")))
    integers = torch.where(finite[:, None], integers, torch.zeros_like(integers))
    return integers.to(torch.int8), torch.where(finite, scales, torch.zeros_like(scales)), widths


def length_of(rows: torch.Tensor) -> torch.Tensor:
    """Of the last dimension. No product: it would load a library."""
    return rows.square().sum(dim=-1).sqrt()
