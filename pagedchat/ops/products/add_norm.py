"""A residual stream and the norm that reads it next, in one launch."""

import torch

from pagedchat.jit.launch import f32, get_kernel, i32
from pagedchat.ops.common.checks import check_same_type, check_shape
from pagedchat.ops.common.launch import (
    PIECE_BYTES,
    address,
    can_overlap,
    ceil_div,
    element_name,
    on_cuda,
    stream_of,
)
from pagedchat.ops.common.norm import Norm, check_norm

NAME = "add_norm"
_MAX_THREADS = 1024


def add_norm(
    hidden: torch.Tensor,
    update: torch.Tensor | None,
    norm: Norm,
    *,
    overlap: bool = False,
) -> torch.Tensor:
    """`hidden += update`, and the norm of the sum.

    Args:
        hidden: `[num_rows, width]`, contiguous, written.
        update: like `hidden`; None adds nothing.
        norm: of the sum.
        overlap: the launch may begin before the kernel before it has ended, which makes `update`.

    Returns:
        `[num_rows, width]`.

    Raises:
        ValueError: shapes or types that do not go together.
    """
    check_shape("hidden", hidden, None, None)
    check_norm(norm, hidden)
    if update is not None:
        check_shape("update", update, *hidden.shape)
        check_same_type("update", update, hidden)
    for name, tensor in (("hidden", hidden), ("update", update)):
        if tensor is not None and not tensor.is_contiguous():
            raise ValueError(f"{name} is not contiguous")
    if not has_kernel(hidden):
        return norm.apply(hidden if update is None else hidden.add_(update))
    normed = torch.empty_like(hidden)
    kernel = get_kernel(NAME, hidden.device.index, ELEMENT=element_name(hidden.dtype), NORM=norm.constant)
    args = (
        normed.data_ptr(),
        hidden.data_ptr(),
        address(update),
        norm.weight.data_ptr(),
        address(norm.bias),
        i32(hidden.shape[1]),
        f32(norm.eps),
    )
    threads = 32 * ceil_div(hidden.shape[1] * hidden.itemsize, 32 * PIECE_BYTES)
    overlap = overlap and can_overlap(hidden.device)
    kernel.launch(len(hidden), threads, args, stream=stream_of(hidden), overlap=overlap)
    return normed


def has_kernel(rows: torch.Tensor) -> bool:
    """Whether rows `[..., width]` are normed by the kernel; others are by torch, on a GPU too."""
    num_bytes = rows.shape[-1] * rows.itemsize
    return on_cuda(rows) and num_bytes % PIECE_BYTES == 0 and num_bytes <= _MAX_THREADS * PIECE_BYTES
