"""Rows times a matrix of few bits, by torch: what kernels are held against, and what there is without them. Knows
neither kernels (`ops.cpu.linear` has those for a CPU) nor layers.
"""

from collections.abc import Callable
from typing import Protocol

import torch
from torch.nn import functional

from pagedchat.ops.common.checks import check_shape

Multiply = Callable[[torch.Tensor, torch.Tensor, None], torch.Tensor]
"""`[num_rows, in_features]` and `[num_outputs, in_features]` -> `[num_rows, num_outputs]`."""

_ELEMENTS_AT_ONCE, _ON_GPU = 1 << 18, 1 << 25
"""Of the matrix that are floats at a time: in a core's cache until they are multiplied; a GPU wants more."""
_ROWS_TOGETHER = 16
"""In some orders: pieces begin at a multiple of them."""


class FewBits(Protocol):
    """A matrix of few bits, in whatever order."""

    @property
    def out_features(self) -> int:
        """Rows."""

    @property
    def in_features(self) -> int:
        """Elements of a row."""

    def floats(self, rows: slice, dtype: torch.dtype) -> torch.Tensor:
        """Some rows, the first of them a multiple of 16: `[num_rows, in_features]`."""


def dequantized_linear(
    rows: torch.Tensor,
    weight: FewBits,
    multiply: Multiply = functional.linear,
    *,
    bias: torch.Tensor | None = None,
) -> torch.Tensor:
    """`rows @ weight.T + bias`: some rows of the matrix at a time become floats and are multiplied.

    Args:
        rows: `[..., in_features]`, float32, bfloat16 or float16.
        weight: of as many `in_features`.
        multiply: by whichever sums.
        bias: `[out_features]`, of the type of the rows.

    Returns:
        `[..., out_features]`, of the type of the rows.

    Raises:
        ValueError: widths that differ.
    """
    check_shape("rows", rows, *(None for _ in rows.shape[:-1]), weight.in_features)
    flat = rows.reshape(-1, weight.in_features)
    product = flat.new_empty(len(flat), weight.out_features)
    most = _ON_GPU if rows.is_cuda else _ELEMENTS_AT_ONCE
    at_once = max(1, most // (weight.in_features * _ROWS_TOGETHER)) * _ROWS_TOGETHER
    for start in range(0, weight.out_features, at_once):
        some = slice(start, min(start + at_once, weight.out_features))
        product[:, some] = multiply(flat, weight.floats(some, rows.dtype), None)
    if bias is not None:
        product += bias
    return product.view(*rows.shape[:-1], weight.out_features)
