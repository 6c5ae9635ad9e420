"""The middle of a gated feed-forward (Shazeer 2020, arXiv 2002.05202): `silu(gate) * value`, in one launch."""

import torch
from torch.nn import functional

from pagedchat.jit.launch import get_kernel, i32
from pagedchat.ops.common.checks import check_shape
from pagedchat.ops.common.launch import PIECE_BYTES, can_overlap, ceil_div, element_name, on_cuda, stream_of

NAME = "silu_and_mul"
_THREADS = 128


def silu_and_mul(gates_and_values: torch.Tensor, *, overlap: bool = False) -> torch.Tensor:
    """Activate the gates and multiply the values by them.

    Args:
        gates_and_values: `[num_tokens, 2 * width]`, contiguous: gates, then values.
        overlap: the launch may begin before the kernel before it has ended, which makes the input.

    Returns:
        `[num_tokens, width]`.

    Raises:
        ValueError: another shape, or not contiguous.
    """
    check_shape("gates_and_values", gates_and_values, None, None)
    if gates_and_values.shape[1] % 2 or not gates_and_values.is_contiguous():
        raise ValueError("gates_and_values is not contiguous, or has an odd width")
    width = gates_and_values.shape[1] // 2
    if not has_kernel(gates_and_values):
        gates, values = gates_and_values.chunk(2, dim=-1)
        return functional.silu(gates) * values
    output = gates_and_values.new_empty(len(gates_and_values), width)
    kernel = get_kernel(NAME, output.device.index, ELEMENT=element_name(output.dtype))
    kernel.launch(
        (ceil_div(width * output.itemsize, _THREADS * PIECE_BYTES), len(output)),
        _THREADS,
        (output.data_ptr(), gates_and_values.data_ptr(), i32(width)),
        stream=stream_of(output),
        overlap=overlap and can_overlap(output.device),
    )
    return output


def has_kernel(gates_and_values: torch.Tensor) -> bool:
    """Whether the kernel does such rows; others are done by torch."""
    width = gates_and_values.shape[1] // 2
    return on_cuda(gates_and_values) and width * gates_and_values.itemsize % PIECE_BYTES == 0
