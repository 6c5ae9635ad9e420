"""Rows times a matrix, of few bits or whole, where no kernel for a few rows takes it: prompts and larger batches.

A whole matrix is a library's. One of few bits goes through `few_bits_linear`, where that has a kernel for it; else
it becomes floats of the rows' type first, some rows of it at a time, each digit times its scale rounded once, and
then it is a library's too. Knows neither layers nor steps.
"""

import torch
from torch.nn import functional

from pagedchat.ops.common.launch import on_cuda
from pagedchat.ops.quantized.few_bits_linear import few_bits_linear, missing_kernel
from pagedchat.ops.quantized.linear import dequantized_linear
from pagedchat.ops.quantized.weight import QuantizedWeight, Weight


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
        product = dequantized_linear(rows, weight, bias=bias)
        return product if out is None else out.copy_(product)
    if out is None:
        return functional.linear(rows, weight, bias)
    if bias is None:
        return torch.mm(rows, weight.T, out=out)
    return torch.addmm(bias, rows, weight.T, out=out)
