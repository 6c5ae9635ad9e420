"""A linear layer for 9 tokens and more whose inner elements are shared by the thread blocks of a cluster.

`output = residual + activation(weight @ input + bias)` by Hopper's warpgroup products; sums meet in shared memory.
"""

import torch

from pagedchat.jit.launch import f32, get_kernel, i32
from pagedchat.jit.tensor_map import tensor_map
from pagedchat.ops.clusters.cluster_plan import MAX_TOKENS, ClusterPlan
from pagedchat.ops.common.choices import ACTIVATIONS, Activation
from pagedchat.ops.common.launch import address, element_name, stream_of
from pagedchat.ops.common.norm import Norm

NAME = "cluster_linear"


def launch_clusters(
    output: torch.Tensor,
    rows: torch.Tensor,
    weight: torch.Tensor,
    bias: torch.Tensor | None,
    residual: torch.Tensor | None,
    activation: Activation,
    paired: bool,
    plan: ClusterPlan,
    *,
    norm: Norm | None = None,
    squares: torch.Tensor | None = None,
    overlap: bool = False,
    sums_squares: bool = False,
) -> torch.Tensor | None:
    """The kernel, arguments as in `warpgroup_linear`, of a product that is known to be right.

    Args:
        output: `[num_tokens, out_features]`, written; may be `residual`.
        rows: `[num_tokens, in_features]`, float16 or bfloat16.
        weight: `[out_features, in_features]`; with `paired` `[2 * out_features, in_features]`, gates first.
        bias: `[out_features]`; not with `paired`.
        residual: `[num_tokens, out_features]`, added at the end.
        activation: after the bias; with `paired` of the gates alone.
        paired: the result is `activation(gate) * value`.
        plan: how it is cut.
        norm: of the rows, an RMS norm.
        squares: of the rows, as the launch that made them has returned them; with `norm`.
        overlap: as in `small_batch_linear`.
        sums_squares: whether the next product norms the output.

    Returns:
        With `sums_squares` the squares of the output's rows, in parts: `[num_parts, MAX_TOKENS]`, float32.
    """
    num_tokens, in_features = rows.shape
    element = element_name(rows.dtype)
    constants = {"ELEMENT": element, "ACTIVATION": ACTIVATIONS[activation], "PAIRED": int(paired), **plan.constants}
    kernel = get_kernel(NAME, rows.device.index, NAME, NORM=norm.constant if norm else 0, **constants)
    next_squares = None
    if sums_squares:
        parts = plan.num_square_parts(output.shape[1])
        next_squares = torch.empty(parts, MAX_TOKENS, dtype=torch.float32, device=rows.device)
    args = (
        output.data_ptr(),
        tensor_map(weight.data_ptr(), weight.shape[0], in_features, plan.rows // (1 + paired), element),
        address(bias),
        tensor_map(rows.data_ptr(), num_tokens, in_features, plan.tokens // plan.sharers, element),
        address(residual),
        address(norm.weight if norm else None),
        address(squares),
        address(next_squares),
        i32(len(squares) if squares is not None else 0),
        f32(norm.eps if norm else 0.0),
        i32(num_tokens),
        i32(in_features),
        i32(output.shape[1]),
    )
    shared = plan.shared_bytes(in_features if norm else 0)
    kernel.allow_shared(shared)
    kernel.launch(
        plan.grid(output.shape[1], num_tokens, paired),
        plan.num_threads(norm is not None),
        args,
        stream=stream_of(rows),
        shared_bytes=shared,
        overlap=overlap,
    )
    return next_squares
