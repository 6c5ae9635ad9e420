"""A linear layer for up to 64 tokens whose inner elements are shared by the thread blocks of a cluster.

`output = residual + activation(weight @ input + bias)` by Hopper's warpgroup products; sums meet in shared memory.
"""

import torch

from pagedchat.jit.launch import get_kernel, i32
from pagedchat.jit.tensor_map import tensor_map
from pagedchat.ops.clusters.cluster_plan import ClusterPlan
from pagedchat.ops.common.choices import ACTIVATIONS, Activation
from pagedchat.ops.common.launch import address, element_name, stream_of
from pagedchat.ops.products.deferred_norm import DeferredRows, NormedRows, arguments_of, constants_of, rows_and_due
from pagedchat.ops.quantized.weight import QuantizedWeight, Weight

NAME = "cluster_linear"
_COLUMNS = 64
"""Elements of 16 bits that are copied at a time of a row, and half as many pairs of bytes."""


def launch_clusters(
    output: torch.Tensor,
    rows: NormedRows,
    weight: Weight,
    bias: torch.Tensor | None,
    residual: torch.Tensor | None,
    activation: Activation,
    paired: bool,
    plan: ClusterPlan,
    *,
    ahead: DeferredRows | None = None,
    beside: int = 0,
    overlap: bool = False,
) -> None:
    """The kernel, arguments as in `warpgroup_linear`, of a product that is known to be right.

    Args:
        output: `[num_tokens, out_features]`, written; may be `residual`. Both may be strided by token, alike, by
            whole pieces of 16 bytes.
        rows: `[num_tokens, in_features]`, float16 or bfloat16; or those of a norm that is due.
        weight: `[out_features, in_features]`, of the rows' type or of few bits; with `paired`
            `[2 * out_features, in_features]`, gates first.
        bias: `[out_features]`; not with `paired`.
        residual: `[num_tokens, out_features]`, added at the end.
        activation: after the bias; with `paired` of the gates alone.
        paired: the result is `activation(gate) * value`.
        plan: how it is cut, of the weight's form. More tokens than it has go by launches of as many.
        ahead: written for the products that read the norm of the output, which is then contiguous and has a
            residual.
        beside: 1: the launch behind this one has the same input and runs beside it; 2: this is that launch; 0:
            neither, as has to be where there are more tokens than the plan has.
        overlap: as in `small_batch_linear`.

    Raises:
        ValueError: a norm is due or ahead, and there are more tokens than the plan has.
    """
    input_rows, due = rows_and_due(rows)
    num_tokens, in_features = input_rows.shape
    if num_tokens > plan.tokens:
        if due is not None or ahead is not None:
            raise ValueError(f"{num_tokens} tokens in launches of {plan.tokens} have no part in a norm")
        for start in range(0, num_tokens, plan.tokens):
            part = slice(start, start + plan.tokens)
            added = None if residual is None else residual[part]
            launch_clusters(
                output[part], input_rows[part], weight, bias, added, activation, paired, plan, overlap=overlap
            )
        return
    element = element_name(input_rows.dtype)
    kernel = get_kernel(
        NAME,
        input_rows.device.index,
        NAME,
        ELEMENT=element,
        ACTIVATION=ACTIVATIONS[activation],
        PAIRED=int(paired),
        **plan.constants,
        **constants_of(ahead, due),
        **({"BESIDE": beside} if beside else {}),
    )
    few = weight if isinstance(weight, QuantizedWeight) else None
    args = (
        output.data_ptr(),
        _weight_map(weight, plan.rows // (1 + paired), element),
        address(None if few is None else few.scales),
        address(None if few is None else few.minimums),
        address(bias),
        tensor_map(input_rows.data_ptr(), num_tokens, in_features, plan.tokens // plan.sharers, element),
        address(residual),
        i32(num_tokens),
        i32(in_features),
        i32(output.shape[1]),
        i32(output.stride(0)),
        *arguments_of(ahead, due),
    )
    kernel.allow_shared(plan.shared_bytes)
    kernel.launch(
        (plan.num_blocks(output.shape[1], paired),),
        plan.num_threads,
        args,
        stream=stream_of(input_rows),
        shared_bytes=plan.shared_bytes,
        overlap=overlap,
    )


def _weight_map(weight: Weight, tile_rows: int, element: str) -> bytes:
    """Few bits are copied as pairs of bytes, as if those were elements of 16 bits."""
    if isinstance(weight, QuantizedWeight):
        num_rows, row_bytes = weight.digits.shape
        return tensor_map(weight.digits.data_ptr(), num_rows, row_bytes // 2, tile_rows, element, _COLUMNS // 2)
    num_rows, in_features = weight.shape
    return tensor_map(weight.data_ptr(), num_rows, in_features, tile_rows, element, _COLUMNS)
