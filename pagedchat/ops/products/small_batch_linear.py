"""The linear layers of a decode step with what comes before and after them, for a few tokens.

`output = residual + scale * activation(weight @ norm(input) + bias)`, in one launch that reads weights as fast as
the memory gives them. Gated feed-forwards (Shazeer 2020, arXiv 2002.05202) with `paired`.
"""

import torch

from pagedchat.jit.launch import f32, i32
from pagedchat.ops.common.checks import check_columns, check_same_type, check_shape
from pagedchat.ops.common.choices import ACTIVATIONS, Activation
from pagedchat.ops.common.launch import address, has_tensor_cores, on_cuda
from pagedchat.ops.common.norm import Norm, check_norm
from pagedchat.ops.products.add_norm import add_norm
from pagedchat.ops.products.library_linear import library_linear
from pagedchat.ops.products.small_batch_launch import ProductLaunch, digits_of, plan_few, product_launch
from pagedchat.ops.quantized.weight import Weight, check_weight

NAME = "small_batch_linear"


def small_batch_linear(
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
    """A product with its neighbours. What no kernel does (`few_rows_plan`), a library does.

    Args:
        input_rows: `[num_tokens, in_features]`.
        weight: `[out_features, in_features]`, of few bits or of the rows' type; with `paired`
            `[2 * out_features, in_features]`, gates first.
        bias: `[out_features]`; not with `paired`.
        residual: `[num_tokens, out_features]`, added at the end; may be `output`.
        residual_scale: of what it is added to.
        norm: of the input rows.
        activation: after the bias; with `paired` of the gates alone.
        paired: the result is `activation(gate) * value`.
        output: `[num_tokens, out_features]`, written; a new one by default. It may be some columns of a wider one,
            without a residual.
        overlap: the launch may begin before the kernel before it has ended; it waits before it reads the input and
            the residual. Only where the kernel before waits for those before it.

    Returns:
        `output`. All other tensors are contiguous, and all of one type.

    Raises:
        ValueError: shapes or types that do not go together.
    """
    num_tokens, out_features = input_rows.shape[0], weight.shape[0] // (2 if paired else 1)
    _check(input_rows, weight, bias, residual, norm, paired, output)
    target = input_rows.new_empty(num_tokens, out_features) if output is None else output
    constants = {"ACTIVATION": ACTIVATIONS[activation], "PAIRED": int(paired)}
    rows, launch = input_rows, None
    if on_cuda(input_rows) and has_kernels_for(input_rows):
        plan = plan_few(input_rows, weight, norm)
        if plan.norm_apart and norm is not None:
            rows, norm = add_norm(input_rows, None, norm, overlap=overlap), None
        launch = product_launch(NAME, plan, rows, weight, norm, **constants)
    if launch is None:
        return library_linear(
            rows,
            weight,
            bias=bias,
            residual=residual,
            residual_scale=residual_scale,
            norm=norm,
            activation=activation,
            paired=paired,
            output=target,
            overlap=overlap,
        )
    _launch(launch, target, rows, weight, bias, residual, residual_scale, norm, overlap)
    return target


def has_kernels_for(rows: torch.Tensor) -> bool:
    """Whether the rows' GPU multiplies their type on tensor cores, which these kernels are made of."""
    return has_tensor_cores(rows)


def _check(
    rows: torch.Tensor,
    weight: Weight,
    bias: torch.Tensor | None,
    residual: torch.Tensor | None,
    norm: Norm | None,
    paired: bool,
    output: torch.Tensor | None,
) -> None:
    check_shape("input_rows", rows, None, None)
    check_shape("weight", weight, None, rows.shape[1])
    check_weight("weight", weight, rows)
    if paired and (bias is not None or weight.shape[0] % 2):
        raise ValueError("paired rows come without a bias and in an even number")
    out_features = weight.shape[0] // (2 if paired else 1)
    if bias is not None:
        check_shape("bias", bias, out_features)
        check_same_type("bias", bias, rows)
    for name, tensor in (("residual", residual), ("output", output)):
        if tensor is not None:
            check_shape(name, tensor, rows.shape[0], out_features)
            check_same_type(name, tensor, rows)
    if norm is not None:
        check_norm(norm, rows)
    for name, tensor in (("input_rows", rows), ("residual", residual)):
        if tensor is not None and not tensor.is_contiguous():
            raise ValueError(f"{name} is not contiguous")
    if output is not None:
        check_columns("output", output, alone=residual is not None)


def _launch(
    launch: ProductLaunch,
    output: torch.Tensor,
    rows: torch.Tensor,
    weight: Weight,
    bias: torch.Tensor | None,
    residual: torch.Tensor | None,
    residual_scale: float,
    norm: Norm | None,
    overlap: bool,
) -> None:
    args = (
        output.data_ptr(),
        digits_of(weight),
        address(bias),
        rows.data_ptr(),
        address(residual),
        address(norm.weight if norm else None),
        address(norm.bias if norm else None),
        i32(rows.shape[0]),
        i32(output.shape[1]),
        i32(output.stride(0)),
        f32(norm.eps if norm else 0.0),
        f32(residual_scale),
    )
    launch.run(args, rows, overlap)
