"""A linear layer with what comes before and after it where no kernel of ours does the product.

A library multiplies, and its neighbours are launches of our own. On a CPU all of it is torch. Weights of few bits
go by `multiply`, which knows how.
"""

import torch
from torch.nn import functional

from pagedchat.ops.common.choices import Activation
from pagedchat.ops.common.launch import on_cuda
from pagedchat.ops.common.norm import Norm
from pagedchat.ops.products.activate import activate
from pagedchat.ops.products.add_norm import add_norm
from pagedchat.ops.quantized.multiply import multiply
from pagedchat.ops.quantized.weight import Weight


def library_linear(
    input_rows: torch.Tensor,
    weight: Weight,
    *,
    bias: torch.Tensor | None = None,
    residual: torch.Tensor | None = None,
    residual_scale: float = 1.0,
    norm: Norm | None = None,
    activation: Activation = "none",
    paired: bool = False,
    output: torch.Tensor | None = None,
    overlap: bool = False,
) -> torch.Tensor:
    """`residual + scale * activation(weight @ norm(input) + bias)`; arguments are those of `small_batch_linear`.

    Returns:
        `output`, or a new tensor.
    """
    rows = input_rows if norm is None else add_norm(input_rows, None, norm, overlap=overlap)
    if (
        isinstance(weight, torch.Tensor)
        and residual is not None
        and bias is None
        and activation == "none"
        and not paired
    ):
        return torch.addmm(residual, rows, weight.T, alpha=residual_scale, out=output)
    if residual is None and bias is None and activation == "none" and not paired:
        return multiply(rows, weight, out=output)
    if paired or activation != "none":
        product = library_middle(rows, weight, bias, activation, paired=paired, overlap=overlap)
    else:
        product = multiply(rows, weight, bias)
    if residual is not None:
        return torch.add(residual, product, alpha=residual_scale, out=output)
    return product if output is None else output.copy_(product)


def library_middle(
    rows: torch.Tensor,
    weight: Weight,
    bias: torch.Tensor | None,
    activation: Activation,
    *,
    paired: bool,
    overlap: bool = True,
) -> torch.Tensor:
    """`activation(rows @ weight.T + bias)`, or with `paired` gates times values, as `activate` has it.

    The library has ReLU in its epilogue, and on a GPU behind a bias GELU by tanh.

    Args:
        rows: `[num_rows, in_features]`.
        weight: `[out_features, in_features]`; with `paired` twice the rows, gates first.
        bias: one number for each row of `weight`.
        activation: which.
        paired: the product is gates and values.
        overlap: as in `small_batch_linear`.

    Returns:
        `[num_rows, out_features]`.
    """
    fused = not paired and in_epilogue(activation, on_gpu=on_cuda(rows))
    if fused and bias is not None and isinstance(weight, torch.Tensor):
        return torch._addmm_activation(bias, rows, weight.T, use_gelu=activation == "gelu_tanh")
    product = multiply(rows, weight, bias)
    if activation == "relu" and not paired:
        return functional.relu_(product)
    return activate(product, activation, paired=paired, overlap=overlap)


def in_epilogue(activation: Activation, *, on_gpu: bool) -> bool:
    """Whether a library activates behind a bias; torch's twin on a CPU has another GELU."""
    return activation == "relu" or (activation == "gelu_tanh" and on_gpu)
