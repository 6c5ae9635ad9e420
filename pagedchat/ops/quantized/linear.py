"""Rows times a matrix of few bits. The one place where kernels for such products come in; until there are any,
torch does them, and it stays what all of them are held against. Knows no layer.
"""

from collections.abc import Callable

import torch
from torch.nn import functional

from pagedchat.ops.common.checks import check_shape
from pagedchat.ops.quantized.weight import QuantizedWeight

Multiply = Callable[[torch.Tensor, torch.Tensor, None], torch.Tensor]
"""`[num_rows, in_features]` and `[num_outputs, in_features]` -> `[num_rows, num_outputs]`."""

_ELEMENTS_AT_ONCE = 1 << 18
"""Of the matrix that are floats at a time: they stay in a core's cache until they are multiplied."""


def quantized_linear(rows: torch.Tensor, weight: QuantizedWeight) -> torch.Tensor:
    """`rows @ weight.T`, a row's numbers never those of its neighbours: only the weight is quantised.

    Args:
        rows: `[..., in_features]`, float32, bfloat16 or float16.
        weight: of as many `in_features`.

    Returns:
        `[..., out_features]`, of the type of the rows.

    Raises:
        ValueError: widths that differ.
    """
    return dequantized_linear(rows, weight)


def dequantized_linear(
    rows: torch.Tensor, weight: QuantizedWeight, multiply: Multiply = functional.linear
) -> torch.Tensor:
    """The same by torch: some rows of the matrix at a time become floats and are multiplied.

    Args:
        rows, weight: as for `quantized_linear`.
        multiply: by whichever sums.

    Raises:
        ValueError: widths that differ.
    """
    check_shape("rows", rows, *(None for _ in rows.shape[:-1]), weight.in_features)
    flat = rows.reshape(-1, weight.in_features)
    product = flat.new_empty(len(flat), weight.out_features)
    at_once = max(1, _ELEMENTS_AT_ONCE // weight.in_features)
    for start in range(0, weight.out_features, at_once):
        part = weight.rows(slice(start, start + at_once)).dequantized(rows.dtype)
        product[:, start : start + at_once] = multiply(flat, part, None)
    return product.view(*rows.shape[:-1], weight.out_features)
