"""A linear layer with what comes before and after it where no kernel of ours does the product.

A library multiplies, and its neighbours are launches of our own. On a CPU all of it is torch.
"""

from typing import Literal

import torch
from torch.nn import functional

from pagedchat.ops.common.norm import Norm
from pagedchat.ops.products.add_norm import add_norm
from pagedchat.ops.products.silu_and_mul import silu_and_mul

Activation = Literal["none", "relu", "silu"]


def library_linear(
    input_rows: torch.Tensor,
    weight: torch.Tensor,
    *,
    bias: torch.Tensor | None = None,
    residual: torch.Tensor | None = None,
    norm: Norm | None = None,
    activation: Activation = "none",
    paired: bool = False,
    output: torch.Tensor,
    overlap: bool = False,
) -> torch.Tensor:
    """`residual + activation(weight @ norm(input) + bias)`; arguments are those of `small_batch_linear`.

    Returns:
        `output`.
    """
    rows = input_rows if norm is None else add_norm(input_rows, None, norm, overlap=overlap)
    if residual is not None and bias is None and activation == "none" and not paired:
        return torch.addmm(residual, rows, weight.T, out=output)
    if residual is None and bias is None and activation == "none" and not paired:
        return torch.mm(rows, weight.T, out=output)
    product = functional.linear(rows, weight, bias)
    if paired and activation == "silu":
        product = silu_and_mul(product, overlap=overlap)
    elif paired:
        gate, value = product.chunk(2, dim=-1)
        product = _activated(gate, activation) * value
    else:
        product = _activated(product, activation)
    return output.copy_(product) if residual is None else torch.add(residual, product, out=output)


def _activated(rows: torch.Tensor, activation: Activation) -> torch.Tensor:
    if activation == "none":
        return rows
    return functional.relu(rows) if activation == "relu" else functional.silu(rows)
