"""A linear layer of 65 rows and more with what comes after it, in one launch on Hopper.

`output = residual + scale * activation(input @ weight.T + bias)` by warpgroup products over tiles that come by
tensor maps. Gated feed-forwards (Shazeer 2020, arXiv 2002.05202) with `paired`.
"""

import torch

from pagedchat.jit.launch import f32, get_kernel, i32
from pagedchat.jit.tensor_map import tensor_map
from pagedchat.ops.common.arrivals import arrival_counters
from pagedchat.ops.common.choices import ACTIVATIONS, Activation
from pagedchat.ops.common.launch import address, element_name, stream_of
from pagedchat.ops.products.wide_plan import BOX_COLUMNS, BOX_ROWS, WidePlan

NAME = "wide_linear"


def launch_wide(
    output: torch.Tensor,
    rows: torch.Tensor,
    weight: torch.Tensor,
    bias: torch.Tensor | None,
    residual: torch.Tensor | None,
    activation: Activation,
    paired: bool,
    plan: WidePlan,
    *,
    residual_scale: float = 1.0,
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
        residual_scale: of what is added to `residual`.
        overlap: as in `small_batch_linear`.
    """
    num_tokens, in_features = rows.shape
    element = element_name(rows.dtype)
    kernel = get_kernel(
        NAME,
        rows.device.index,
        NAME,
        ELEMENT=element,
        ACTIVATION=ACTIVATIONS[activation],
        PAIRED=int(paired),
        RESIDUAL=int(residual is not None),
        **plan.constants,
    )
    left = torch.empty(plan.left_bytes // 4, dtype=torch.float32, device=rows.device)
    args = (
        output.data_ptr(),
        tensor_map(output.data_ptr(), num_tokens, output.shape[1], BOX_ROWS, element, BOX_COLUMNS),
        tensor_map(rows.data_ptr(), num_tokens, in_features, plan.tokens // 2, element),
        tensor_map(weight.data_ptr(), weight.shape[0], in_features, plan.sums // 2, element),
        address(bias),
        address(residual),
        left.data_ptr(),
        arrival_counters(rows.device, 1 + plan.num_blocks, "products").data_ptr(),
        f32(residual_scale),
        i32(num_tokens),
        i32(in_features),
        i32(output.shape[1]),
        i32(plan.streamed),
    )
    kernel.allow_shared(plan.shared_bytes)
    kernel.launch(
        plan.num_blocks,
        plan.num_threads,
        args,
        stream=stream_of(rows),
        shared_bytes=plan.shared_bytes,
        overlap=overlap,
    )
