"""The first half of a gated feed-forward of 65 rows and more in one launch on Hopper: `activation(gate) * value`
(Shazeer 2020, arXiv 2002.05202), by warpgroup products over tiles that come by tensor maps.
"""

import torch

from pagedchat.jit.launch import get_kernel, i32
from pagedchat.jit.tensor_map import tensor_map
from pagedchat.ops.common.choices import ACTIVATIONS, Activation
from pagedchat.ops.common.launch import element_name, stream_of
from pagedchat.ops.products.wide_plan import BOX_COLUMNS, BOX_ROWS, WidePlan

NAME = "wide_gates"


def launch_wide_gates(
    output: torch.Tensor,
    rows: torch.Tensor,
    weight: torch.Tensor,
    activation: Activation,
    plan: WidePlan,
    *,
    overlap: bool = False,
) -> None:
    """The kernel, arguments as in `warpgroup_linear`, of a product that is known to be right.

    Args:
        output: `[num_tokens, out_features]`, written.
        rows: `[num_tokens, in_features]`, float16 or bfloat16.
        weight: `[2 * out_features, in_features]`, gates first.
        activation: of the gates.
        plan: how it is cut.
        overlap: as in `small_batch_linear`.
    """
    num_tokens, in_features = rows.shape
    element = element_name(rows.dtype)
    constants = {"ELEMENT": element, "ACTIVATION": ACTIVATIONS[activation], **plan.constants}
    kernel = get_kernel(NAME, rows.device.index, NAME, **constants)
    args = (
        tensor_map(output.data_ptr(), num_tokens, output.shape[1], BOX_ROWS, element, BOX_COLUMNS),
        tensor_map(rows.data_ptr(), num_tokens, in_features, plan.tokens // 2, element),
        tensor_map(weight.data_ptr(), weight.shape[0], in_features, plan.sums // 2, element),
        i32(num_tokens),
        i32(in_features),
        i32(output.shape[1]),
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
