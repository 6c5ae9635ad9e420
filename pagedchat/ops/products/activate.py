"""The middle of a feed-forward in one launch: an activation, or `activation(gate) * value` (Shazeer 2020, arXiv
2002.05202). Does not know who has made its input.
"""

import torch

from pagedchat.jit.launch import get_kernel, i32
from pagedchat.ops.common.activation import activated
from pagedchat.ops.common.checks import check_shape
from pagedchat.ops.common.choices import ACTIVATIONS, Activation
from pagedchat.ops.common.launch import PIECE_BYTES, can_overlap, ceil_div, element_name, on_cuda, stream_of

NAME, ENTRY = "activate", "activate_rows"
_THREADS = 128


def activate(rows: torch.Tensor, activation: Activation, *, paired: bool, overlap: bool = False) -> torch.Tensor:
    """Activate rows; or with `paired` gates, by which values are multiplied.

    Args:
        rows: `[num_tokens, width]`, contiguous; with `paired` `[num_tokens, 2 * width]`, gates and then values.
        activation: which; with `paired` of the gates alone.
        paired: the rows are gates and values.
        overlap: the launch may begin before the kernel before it has ended, which makes the input.

    Returns:
        `[num_tokens, width]`.

    Raises:
        ValueError: another shape, or not contiguous.
    """
    check_shape("rows", rows, None, None)
    if not rows.is_contiguous() or (paired and rows.shape[1] % 2):
        raise ValueError("rows is not contiguous, or has an odd width")
    width = rows.shape[1] // (2 if paired else 1)
    if not has_kernel(rows, paired=paired):
        if not paired:
            return activated(rows, activation)
        gates, values = rows.chunk(2, dim=-1)
        return activated(gates, activation) * values
    output = rows.new_empty(len(rows), width)
    constants = {"ACTIVATION": ACTIVATIONS[activation], "PAIRED": int(paired)}
    kernel = get_kernel(NAME, output.device.index, ENTRY, ELEMENT=element_name(output.dtype), **constants)
    kernel.launch(
        len(output) * ceil_div(width * output.itemsize, _THREADS * PIECE_BYTES),
        _THREADS,
        (output.data_ptr(), rows.data_ptr(), i32(width)),
        stream=stream_of(output),
        overlap=overlap and can_overlap(output.device),
    )
    return output


def has_kernel(rows: torch.Tensor, *, paired: bool) -> bool:
    """Whether the kernel does such rows; others are done by torch, on a GPU too."""
    width = rows.shape[1] // (2 if paired else 1)
    return on_cuda(rows) and width * rows.itemsize % PIECE_BYTES == 0
