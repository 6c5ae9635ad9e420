"""The linear layers of a decode step for some dozens of tokens, with what comes after them, in one launch.

`output = residual + activation(weight @ input + bias)`. Thread blocks of a cluster share the inner dimension, so
that products are spread over the whole GPU although they are small. Gated feed-forwards (Shazeer 2020, arXiv
2002.05202) with `paired`.
"""

import torch

from pagedchat.jit.driver import gpu
from pagedchat.jit.launch import get_kernel, i32
from pagedchat.ops.cluster_plan import TILE_ROWS, num_parts, plan_cluster, shared_bytes, token_tiles
from pagedchat.ops.cuda_launch import can_overlap, ceil_div, element_name, on_cuda, stream_of
from pagedchat.ops.linear_arguments import ACTIVATIONS, check_linear
from pagedchat.ops.small_batch_linear import Activation, address, small_batch_linear

NAME = "cluster_linear"
_ROW_THREADS = 128
"""Of different rows; so many for each part of the inner dimension that warps share."""


def cluster_linear(
    input_rows: torch.Tensor,
    weight: torch.Tensor,
    *,
    bias: torch.Tensor | None = None,
    residual: torch.Tensor | None = None,
    activation: Activation = "none",
    paired: bool = False,
    output: torch.Tensor | None = None,
    overlap: bool = False,
) -> torch.Tensor:
    """A product with what follows it. Where the kernel cannot do it (`can_share`), torch does.

    Args:
        input_rows: `[num_tokens, in_features]`, float16 or bfloat16.
        weight: `[out_features, in_features]`; with `paired` `[2 * out_features, in_features]`, gates first.
        bias: `[out_features]`; not with `paired`.
        residual: `[num_tokens, out_features]`, added at the end; may be `output`.
        activation: after the bias; with `paired` of the gates alone.
        paired: the result is `activation(gate) * value`.
        output: `[num_tokens, out_features]`, written; a new one by default.
        overlap: as in `small_batch_linear`.

    Returns:
        `output`. All tensors are contiguous and of one type.

    Raises:
        ValueError: shapes or types that do not go together.
    """
    cluster = _plan(weight, len(input_rows)) if can_share(weight, len(input_rows)) else None
    if cluster is None:
        return small_batch_linear(
            input_rows,
            weight,
            bias=bias,
            residual=residual,
            activation=activation,
            paired=paired,
            output=output,
            overlap=overlap,
        )
    out_features = weight.shape[0] // (2 if paired else 1)
    target = input_rows.new_empty(len(input_rows), out_features) if output is None else output
    check_linear(input_rows, weight, bias, residual, paired, target)
    _launch(target, input_rows, weight, bias, residual, activation, paired, cluster, overlap)
    return target


def can_share(weight: torch.Tensor, num_tokens: int) -> bool:
    """Whether the kernel does products with a weight: 16-bit types, whole tiles, on a GPU with clusters (sm_90)."""
    if not on_cuda(weight) or weight.dtype == torch.float32 or not can_overlap(weight.device):
        return False
    return weight.shape[0] % TILE_ROWS == 0 and _plan(weight, num_tokens) is not None


def _plan(weight: torch.Tensor, num_tokens: int) -> int | None:
    return plan_cluster(weight.shape[1], num_tokens, gpu(weight.device.index).shared_bytes)


def _launch(
    output: torch.Tensor,
    rows: torch.Tensor,
    weight: torch.Tensor,
    bias: torch.Tensor | None,
    residual: torch.Tensor | None,
    activation: Activation,
    paired: bool,
    cluster: int,
    overlap: bool,
) -> None:
    num_tokens, in_features = rows.shape
    tiles = token_tiles(num_tokens)
    kernel = get_kernel(
        NAME,
        rows.device.index,
        ELEMENT=element_name(rows.dtype),
        IN_FEATURES=in_features,
        CLUSTER=cluster,
        PARTS=num_parts(in_features, cluster),
        TOKEN_TILES=tiles,
        ACTIVATION=ACTIVATIONS[activation],
        PAIRED=int(paired),
    )
    args = (
        output.data_ptr(),
        weight.data_ptr(),
        address(bias),
        rows.data_ptr(),
        address(residual),
        i32(num_tokens),
        i32(output.shape[1]),
    )
    shared = shared_bytes(in_features, cluster, tiles)
    kernel.allow_shared(shared)
    kernel.launch(
        (cluster, weight.shape[0] // TILE_ROWS, ceil_div(num_tokens, 8 * tiles)),
        _ROW_THREADS * num_parts(in_features, cluster),
        args,
        stream=stream_of(rows),
        shared_bytes=shared,
        overlap=overlap and can_overlap(rows.device),
    )
