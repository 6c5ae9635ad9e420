"""Merge the attentions of the same queries over two disjoint sets of keys."""

import torch

from pagedchat.jit.launch import get_kernel, i32
from pagedchat.ops.cache.layout import row_elements
from pagedchat.ops.common.checks import check_dtype, check_same_type, check_shape
from pagedchat.ops.common.launch import (
    address,
    can_overlap,
    ceil_div,
    element_name,
    on_cuda,
    stream_of,
    with_whole_rows,
)

_THREADS = 128


def merge_attn_states(
    output: torch.Tensor,
    output_lse: torch.Tensor | None,
    prefix_output: torch.Tensor,
    prefix_lse: torch.Tensor,
    suffix_output: torch.Tensor,
    suffix_lse: torch.Tensor,
) -> None:
    """Attention over both sets, from each one's output and log-sum-exp (FlashInfer, arXiv 2501.01005, section 2.2).

    Args:
        output: `[num_tokens, num_heads, head_size]`, contiguous, written; no other tensor's memory.
        output_lse: `[num_tokens, num_heads]`, float32, contiguous, written; None if nobody asks.
        prefix_output, suffix_output: like `output`, any strides.
        prefix_lse, suffix_lse: `[num_tokens, num_heads]`, float32; `-inf` marks a side without keys, whose output
            does not count, whatever it holds, and so does `+inf`, which some kernels write for it. Without keys on
            either side the output is 0 and the log-sum-exp `-inf`.

    Raises:
        ValueError: shapes or types that do not go together.
    """
    check_shape("output", output, None, None, None)
    for name, tensor in (("prefix_output", prefix_output), ("suffix_output", suffix_output)):
        check_shape(name, tensor, *output.shape)
        check_same_type(name, tensor, output)
    for name, lse in (("output_lse", output_lse), ("prefix_lse", prefix_lse), ("suffix_lse", suffix_lse)):
        if lse is not None:
            check_shape(name, lse, *output.shape[:2])
            check_dtype(name, lse, torch.float32)
    if on_cuda(output):
        _launch(output, output_lse, prefix_output, prefix_lse, suffix_output, suffix_lse)
    else:
        _merge(output, output_lse, prefix_output, prefix_lse, suffix_output, suffix_lse)


def _merge(
    output: torch.Tensor,
    output_lse: torch.Tensor | None,
    prefix_output: torch.Tensor,
    prefix_lse: torch.Tensor,
    suffix_output: torch.Tensor,
    suffix_lse: torch.Tensor,
) -> None:
    prefix_lse, suffix_lse = (lse.masked_fill(lse == torch.inf, -torch.inf) for lse in (prefix_lse, suffix_lse))
    top = torch.maximum(prefix_lse, suffix_lse)  # [num_tokens, num_heads]
    merged = torch.zeros(output.shape, dtype=torch.float32, device=output.device)
    total = torch.zeros_like(top)
    for side, lse in ((prefix_output, prefix_lse), (suffix_output, suffix_lse)):
        is_empty = lse == -torch.inf
        weight = torch.exp(lse - top).masked_fill(is_empty, 0.0)
        merged += weight[..., None] * side.float().masked_fill(is_empty[..., None], 0.0)
        total += weight
    output.copy_(merged / total[..., None].clamp(min=1.0))  # the larger side has weight 1; nothing at all has 0
    if output_lse is not None:
        output_lse.copy_(top + torch.log(total))


def _launch(
    output: torch.Tensor,
    output_lse: torch.Tensor | None,
    prefix_output: torch.Tensor,
    prefix_lse: torch.Tensor,
    suffix_output: torch.Tensor,
    suffix_lse: torch.Tensor,
) -> None:
    for name, tensor in (("output", output), ("output_lse", output_lse)):
        if tensor is not None and not tensor.is_contiguous():
            raise ValueError(f"{name} has strides {list(tensor.stride())}, expected contiguous")
    num_tokens, num_heads, head_size = output.shape
    if output.numel() == 0:
        return
    inputs = [prefix_output, prefix_lse, suffix_output, suffix_lse]
    inputs = [
        with_whole_rows(tensor.contiguous()) if tensor.dim() == 3 else tensor.contiguous() for tensor in inputs
    ]
    kernel = get_kernel(
        "merge_attn_states", output.device.index, ELEMENT=element_name(output.dtype), HEAD_SIZE=head_size
    )
    rows = head_size // row_elements(output.dtype)
    states_per_block = _THREADS // rows
    pointers = (
        output.data_ptr(),
        address(output_lse),
        *(tensor.data_ptr() for tensor in inputs),
    )
    num_states = num_tokens * num_heads
    kernel.launch(
        ceil_div(num_states, states_per_block),
        states_per_block * rows,
        (*pointers, i32(num_states)),
        stream=stream_of(output),
        overlap=can_overlap(output.device),
    )
