"""A linear layer for 9 to 64 tokens whose weight, of any size, streams through all multiprocessors at once.

`output = residual + activation(weight @ input + bias)` by Hopper's warpgroup products, every thread block with
equally much of the weight: Stream-K (Osama et al. 2023, arXiv 2301.03598).
"""

import torch

from pagedchat.jit.launch import get_kernel, i32
from pagedchat.ops.common.arrivals import arrival_counters
from pagedchat.ops.common.choices import ACTIVATIONS, Activation
from pagedchat.ops.common.launch import address, element_name, stream_of
from pagedchat.ops.products.stream_k_plan import ROWS, StreamKPlan

NAME = "stream_k_linear"


def launch_stream_k(
    output: torch.Tensor,
    rows: torch.Tensor,
    weight: torch.Tensor,
    bias: torch.Tensor | None,
    residual: torch.Tensor | None,
    activation: Activation,
    paired: bool,
    plan: StreamKPlan,
    *,
    overlap: bool = False,
) -> None:
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
        overlap: as in `small_batch_linear`.
    """
    num_tokens, in_features = rows.shape
    kernel = get_kernel(
        NAME,
        rows.device.index,
        NAME,
        ELEMENT=element_name(rows.dtype),
        IN_FEATURES=in_features,
        ACTIVATION=ACTIVATIONS[activation],
        PAIRED=int(paired),
        **plan.constants,
    )
    sums = torch.empty(plan.num_blocks * ROWS * plan.tokens, dtype=torch.float32, device=rows.device)
    args = (
        output.data_ptr(),
        weight.data_ptr(),
        address(bias),
        rows.data_ptr(),
        address(residual),
        sums.data_ptr(),
        arrival_counters(rows.device, 1 + plan.num_blocks, "products").data_ptr(),
        i32(num_tokens),
        i32(output.shape[1]),
    )
    shared = plan.shared_bytes(paired)
    kernel.allow_shared(shared)
    kernel.launch(
        (plan.num_blocks,),
        plan.num_threads,
        args,
        stream=stream_of(rows),
        shared_bytes=shared,
        overlap=overlap,
    )
