"""What the kernels for linear layers of some dozens of tokens and more are given, checked."""

import torch

from pagedchat.ops.checks import check_same_type, check_shape
from pagedchat.ops.small_batch_linear import Activation

ACTIVATIONS: dict[Activation, int] = {"none": 0, "relu": 1, "silu": 2}
"""The `ACTIVATION` constant of the kernels."""


def check_linear(
    rows: torch.Tensor,
    weight: torch.Tensor,
    bias: torch.Tensor | None,
    residual: torch.Tensor | None,
    paired: bool,
    output: torch.Tensor,
) -> None:
    """Refuse tensors that do not go together; arguments as in `cluster_linear`.

    Raises:
        ValueError: shapes, types or strides that do not fit.
    """
    check_shape("input_rows", rows, None, None)
    check_shape("weight", weight, None, rows.shape[1])
    if paired and bias is not None:
        raise ValueError("paired rows come without a bias")
    out_features = weight.shape[0] // (2 if paired else 1)
    if bias is not None:
        check_shape("bias", bias, out_features)
    for name, tensor in (("residual", residual), ("output", output)):
        if tensor is not None:
            check_shape(name, tensor, len(rows), out_features)
    tensors = (("input_rows", rows), ("weight", weight), ("bias", bias), ("residual", residual), ("output", output))
    for name, tensor in tensors:
        if tensor is not None:
            check_same_type(name, tensor, rows)
            if not tensor.is_contiguous():
                raise ValueError(f"{name} is not contiguous")
