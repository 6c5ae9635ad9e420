"""Rows times a matrix, of few bits or whole, where no kernel for a few rows takes it: prompts and larger batches.

A whole matrix is a library's. One of few bits goes through `few_bits_linear`, where that has a kernel for it; else
it becomes floats of the rows' type first, some rows of it at a time, each digit times its scale rounded once, and
then it is a library's too. Knows neither layers nor steps.
"""

import torch
from torch.nn import functional

from pagedchat.ops.common.launch import on_cuda
from pagedchat.ops.quantized.few_bits_linear import few_bits_linear, missing_kernel
from pagedchat.ops.quantized.weight import ZERO_OF_4_BITS, QuantizedWeight, Weight

_ELEMENTS_AT_ONCE = 1 << 27
"""Of a matrix that are floats at a time on a GPU, at most: all of most matrices."""


def multiply(
    rows: torch.Tensor, weight: Weight, bias: torch.Tensor | None = None, *, out: torch.Tensor | None = None
) -> torch.Tensor:
    """`rows @ weight.T + bias`.

    Args:
        rows: `[num_rows, in_features]`.
        weight: `[out_features, in_features]`, of the rows' type or of few bits.
        bias: `[out_features]`.
        out: `[num_rows, out_features]`, written; a new one by default.

    Returns:
        `out`.
    """
    if isinstance(weight, QuantizedWeight):
        if on_cuda(rows) and len(rows) > 0 and not missing_kernel(weight, rows.dtype):
            return few_bits_linear(rows, weight, bias, out=out)
        return multiply_floats(rows, weight, bias, out=out)
    if out is None:
        return functional.linear(rows, weight, bias)
    if bias is None:
        return torch.mm(rows, weight.T, out=out)
    return torch.addmm(bias, rows, weight.T, out=out)


def multiply_floats(
    rows: torch.Tensor,
    weight: QuantizedWeight,
    bias: torch.Tensor | None = None,
    *,
    out: torch.Tensor | None = None,
) -> torch.Tensor:
    """The same by a library alone; arguments as of `multiply`. What kernels are held against."""
    if out is None:
        out = rows.new_empty(len(rows), weight.out_features)
    at_once = max(1, _ELEMENTS_AT_ONCE // weight.in_features)
    for start in range(0, weight.out_features, at_once):
        some = slice(start, min(start + at_once, weight.out_features))
        out[:, some] = functional.linear(rows, as_floats(weight.rows(some), rows.dtype))
    return out if bias is None else out.add_(bias)


def as_floats(weight: QuantizedWeight, dtype: torch.dtype) -> torch.Tensor:
    """All elements, `[out_features, in_features]`: as `QuantizedWeight.dequantized`, with less in between.

    Args:
        weight: what becomes floats.
        dtype: of those.
    """
    num_rows, group = weight.out_features, weight.group_size
    floats = torch.empty(num_rows, weight.in_features, dtype=dtype, device=weight.device)
    grouped = floats.view(num_rows, -1, group)
    scales = weight.scales.float().unsqueeze(-1)
    if weight.bits == 8:
        digits = weight.digits if weight.digits.dtype == torch.int8 else weight.digits.to(torch.float16)
        _scale(grouped, digits.view(num_rows, -1, group), scales, weight.minimums)
        return floats
    # Halves of bytes, each with its own stride; a digit of 0 means 8 less.
    offset = -ZERO_OF_4_BITS * scales
    if weight.minimums is not None:
        offset = offset + weight.minimums.float().unsqueeze(-1)
    octets = weight.digits.view(num_rows, -1, group // 2)
    for first, digits in enumerate((octets & 15, octets >> 4)):
        grouped[..., first::2] = torch.addcmul(offset, digits, scales)
    return floats


def _scale(floats: torch.Tensor, digits: torch.Tensor, scales: torch.Tensor, minimums: torch.Tensor | None) -> None:
    """`[num_rows, groups, group_size]`, and a scale and a minimum for each group."""
    if minimums is None:
        torch.mul(digits, scales, out=floats)
    else:
        floats.copy_(torch.addcmul(minimums.float().unsqueeze(-1), digits, scales))
