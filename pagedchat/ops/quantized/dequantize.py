"""A matrix of few bits -> 16 bits on a GPU, all of it or some rows. Knows no products."""

import torch

from pagedchat.jit.launch import get_kernel, i32
from pagedchat.ops.common.checks import check_shape
from pagedchat.ops.common.launch import address, ceil_div, element_name, on_cuda, stream_of
from pagedchat.ops.quantized.weight import QuantizedWeight
from pagedchat.ops.quantized.weight_form import NUMBERS

NAME = "dequantize"
_NUM_THREADS = 256
_PIECE = 8
"""Elements of a thread."""
_TYPES = (torch.float16, torch.bfloat16)


def dequantize(weight: QuantizedWeight, output: torch.Tensor) -> torch.Tensor:
    """`weight.dequantized` in a place that is there already; the same numbers.

    Args:
        weight: contiguous; its group size is a multiple of 8.
        output: `[out_features, in_features]`, contiguous, float16 or bfloat16; written.

    Returns:
        `output`.

    Raises:
        ValueError: shapes or types that do not go together, or a group that is no multiple of 8.
    """
    check_shape("output", output, weight.out_features, weight.in_features)
    if weight.group_size % _PIECE:
        raise ValueError(f"group_size is {weight.group_size}, expected a multiple of {_PIECE}")
    if not on_cuda(weight.digits, output):
        return output.copy_(weight.dequantized(output.dtype))
    if output.dtype not in _TYPES:
        raise ValueError(f"output is {output.dtype}, expected one of {', '.join(map(str, _TYPES))}")
    num_pieces = output.numel() // _PIECE
    if num_pieces == 0:
        return output
    args = (
        output.data_ptr(),
        weight.digits.data_ptr(),
        weight.scales.data_ptr(),
        address(weight.minimums),
        i32(num_pieces),
        i32(weight.in_features // _PIECE),
        i32(weight.group_size),
    )
    element, kind = element_name(output.dtype), NUMBERS[weight.form.kind]
    kernel = get_kernel(NAME, output.device.index, NAME, ELEMENT=element, WEIGHT_KIND=kind)
    kernel.launch((ceil_div(num_pieces, _NUM_THREADS),), _NUM_THREADS, args, stream=stream_of(output))
    return output
