"""The linear layers of prompts and of decode steps, with what comes after them, in one launch.

`output = residual + activation(weight @ input + bias)` by Hopper's warpgroup products. The weights are fetched
while the kernel before still runs: a small one stays in shared memory, a large one streams through it
(`cluster_linear`, `stream_k_linear`). Gated feed-forwards (Shazeer 2020, arXiv 2002.05202) with `paired`, for any
number of rows (`wide_gates`).
"""

from collections.abc import Sequence

import torch

from pagedchat.jit.driver import gpu
from pagedchat.jit.launch import get_kernel, i32
from pagedchat.ops.clusters.cluster_linear import launch_clusters
from pagedchat.ops.clusters.cluster_plan import ClusterPlan
from pagedchat.ops.common.checks import check_columns, check_same_type, check_shape
from pagedchat.ops.common.choices import ACTIVATIONS, Activation
from pagedchat.ops.common.launch import address, ceil_div, element_name, has_warpgroups, stream_of
from pagedchat.ops.products.library_linear import library_linear
from pagedchat.ops.products.many_rows_plan import ManyRowsPlan, plan_many_rows
from pagedchat.ops.products.stream_k_linear import launch_stream_k
from pagedchat.ops.products.stream_k_plan import StreamKPlan
from pagedchat.ops.products.warpgroup_plan import WarpgroupPlan, shared_bytes
from pagedchat.ops.products.wide_gates import launch_wide_gates
from pagedchat.ops.products.wide_plan import WidePlan
from pagedchat.ops.quantized.few_bits_linear import missing_kernel
from pagedchat.ops.quantized.weight import QuantizedWeight, Weight, check_weight, form_of

NAME = "warpgroup_linear"


def warpgroup_linear(
    input_rows: torch.Tensor,
    weight: Weight,
    *,
    bias: torch.Tensor | None = None,
    residual: torch.Tensor | None = None,
    activation: Activation = "none",
    paired: bool = False,
    output: torch.Tensor | None = None,
    overlap: bool = False,
) -> torch.Tensor:
    """A product with what follows it, by the kernel that `many_rows_plan` names; where it names none, by a library,
    or of few bits by `ops.quantized.multiply`.

    Args:
        input_rows: `[num_tokens, in_features]`, float16 or bfloat16.
        weight: `[out_features, in_features]`; with `paired` `[2 * out_features, in_features]`, gates first.
        bias: `[out_features]`; not with `paired`.
        residual: `[num_tokens, out_features]`, added at the end; may be `output`.
        activation: after the bias; with `paired` of the gates alone.
        paired: the result is `activation(gate) * value`.
        output: `[num_tokens, out_features]`, written; a new one by default. Of a weight of few bits it may be some
            columns of a wider one, without a residual.
        overlap: as in `small_batch_linear`.

    Returns:
        `output`. All other tensors are contiguous, and all of one type.

    Raises:
        ValueError: shapes or types that do not go together.
    """
    out_features = weight.shape[0] // (2 if paired else 1)
    _check(input_rows, weight, bias, residual, paired, output)
    plan = _plan(input_rows, weight, paired)
    if plan is None or (residual is not None and isinstance(plan, WidePlan)):
        return library_linear(
            input_rows,
            weight,
            bias=bias,
            residual=residual,
            activation=activation,
            paired=paired,
            output=output,
            overlap=overlap,
        )
    target = input_rows.new_empty(len(input_rows), out_features) if output is None else output
    if isinstance(plan, ClusterPlan):
        launch_clusters(target, input_rows, weight, bias, residual, activation, paired, plan, overlap=overlap)
        return target
    assert isinstance(weight, torch.Tensor)  # noqa: S101 - few bits have plans by clusters alone
    arguments = target, input_rows, weight, bias, residual, activation, paired
    if isinstance(plan, StreamKPlan):
        launch_stream_k(*arguments, plan, overlap=overlap)
    elif isinstance(plan, WidePlan):
        launch_wide_gates(target, input_rows, weight, activation, plan, overlap=overlap)
    else:
        _launch(*arguments, plan, overlap)
    return target


def side_by_side(
    input_rows: torch.Tensor,
    parts: Sequence[tuple[Weight, torch.Tensor | None]],
    output: torch.Tensor,
) -> None:
    """Two products of the same rows into neighbouring columns, at the same time where both go by clusters; the
    launches overlap as `warpgroup_linear`'s may.

    Args:
        input_rows: `[num_tokens, in_features]`, float16 or bfloat16.
        parts: weights of few bits, `[out_features, in_features]`, and biases `[out_features]`.
        output: `[num_tokens, out_features of both]`, written.

    Raises:
        ValueError: shapes or types that do not go together.
    """
    plans = [_plan(input_rows, weight, paired=False) for weight, _ in parts]
    beside = all(isinstance(plan, ClusterPlan) and len(input_rows) <= plan.tokens for plan in plans)
    start = 0
    for number, ((weight, bias), plan) in enumerate(zip(parts, plans, strict=True), start=1):
        columns = output[:, start : start + len(weight)]
        if beside and isinstance(plan, ClusterPlan):
            _check(input_rows, weight, bias, None, False, columns)
            launch_clusters(
                columns, input_rows, weight, bias, None, "none", False, plan, beside=number, overlap=True
            )
        else:
            warpgroup_linear(input_rows, weight, bias=bias, output=columns, overlap=True)
        start += len(weight)


def _plan(rows: torch.Tensor, weight: Weight, paired: bool) -> ManyRowsPlan | None:
    if not has_warpgroups(rows) or (isinstance(weight, QuantizedWeight) and missing_kernel(weight, rows.dtype)):
        return None
    out_features = weight.shape[0] // (2 if paired else 1)
    on = gpu(rows.device.index)
    return plan_many_rows(weight.shape[1], out_features, len(rows), paired=paired, gpu=on, form=form_of(weight))


def _launch(
    output: torch.Tensor,
    rows: torch.Tensor,
    weight: torch.Tensor,
    bias: torch.Tensor | None,
    residual: torch.Tensor | None,
    activation: Activation,
    paired: bool,
    plan: WarpgroupPlan,
    overlap: bool,
) -> None:
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
    args = (
        output.data_ptr(),
        weight.data_ptr(),
        address(bias),
        rows.data_ptr(),
        address(residual),
        i32(num_tokens),
        i32(output.shape[1]),
    )
    shared = shared_bytes(in_features, plan, paired)
    kernel.allow_shared(shared)
    kernel.launch(
        (plan.cluster, output.shape[1] // plan.columns, ceil_div(num_tokens, plan.tokens)),
        plan.num_threads,
        args,
        stream=stream_of(rows),
        shared_bytes=shared,
        overlap=overlap,
    )


def _check(
    rows: torch.Tensor,
    weight: Weight,
    bias: torch.Tensor | None,
    residual: torch.Tensor | None,
    paired: bool,
    output: torch.Tensor | None,
) -> None:
    check_shape("input_rows", rows, None, None)
    check_shape("weight", weight, None, rows.shape[1])
    if paired and bias is not None:
        raise ValueError("paired rows come without a bias")
    out_features = weight.shape[0] // (2 if paired else 1)
    if bias is not None:
        check_shape("bias", bias, out_features)
    for name, tensor in (("residual", residual), ("output", output)):
        if tensor is not None:
            check_shape(name, tensor, len(rows), out_features)
    check_weight("weight", weight, rows)
    tensors = (("input_rows", rows), ("bias", bias), ("residual", residual), ("output", output))
    for name, tensor in tensors:
        if tensor is not None:
            check_same_type(name, tensor, rows)
            if tensor is not output and not tensor.is_contiguous():
                raise ValueError(f"{name} is not contiguous")
    if output is not None:
        check_columns("output", output, alone=residual is not None or isinstance(weight, torch.Tensor))
