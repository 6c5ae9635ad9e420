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
from pagedchat.ops.common.norm import Norm
from pagedchat.ops.products.deferred_norm import (
    DeferredRows,
    NormedRows,
    arguments_of,
    can_be_deferred,
    constants_of,
    rows_and_due,
)
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
_WITH_NORMS = WarpgroupPlan | ClusterPlan
"""Kernels that leave the first half of a norm, and do the second (`deferred_norm`)."""
_MOST_SUMS, _MOST_READ_BYTES = 2048, 20 << 20
"""Of such a norm: sums of squares of all rows together, and bytes of the weight behind it."""


def warpgroup_linear(
    input_rows: NormedRows,
    weight: Weight,
    *,
    bias: torch.Tensor | None = None,
    residual: torch.Tensor | None = None,
    activation: Activation = "none",
    paired: bool = False,
    output: torch.Tensor | None = None,
    ahead: DeferredRows | None = None,
    overlap: bool = False,
) -> torch.Tensor:
    """A product with what follows it, by the kernel that `many_rows_plan` names; where it names none, by a library,
    or of few bits by `ops.quantized.multiply`.

    Args:
        input_rows: `[num_tokens, in_features]`, float16 or bfloat16; or those of a norm that is due.
        weight: `[out_features, in_features]`; with `paired` `[2 * out_features, in_features]`, gates first.
        bias: `[out_features]`; not with `paired`.
        residual: `[num_tokens, out_features]`, added at the end; may be `output`.
        activation: after the bias; with `paired` of the gates alone.
        paired: the result is `activation(gate) * value`.
        output: `[num_tokens, out_features]`, written; a new one by default. Of a weight of few bits it may be some
            columns of a wider one, without a residual.
        ahead: from `deferred_rows`, written; with a residual.
        overlap: as in `small_batch_linear`.

    Returns:
        `output`. All other tensors are contiguous, and all of one type.

    Raises:
        ValueError: shapes or types that do not go together.
    """
    rows, due = rows_and_due(input_rows)
    _check(rows, weight, bias, residual, paired, output)
    if ahead is not None and (residual is None or ahead.rows.shape != residual.shape):
        raise ValueError("rows for the norm ahead are unlike the residual")
    plan = _plan(rows, weight, paired)
    if not (due is None and ahead is None) and not isinstance(plan, _WITH_NORMS):
        raise ValueError("the kernel of this product has no part in a norm")
    if plan is None or (residual is not None and isinstance(plan, WidePlan)):
        return library_linear(
            rows,
            weight,
            bias=bias,
            residual=residual,
            activation=activation,
            paired=paired,
            output=output,
            overlap=overlap,
        )
    target = rows.new_empty(len(rows), weight.shape[0] // (1 + paired)) if output is None else output
    if isinstance(plan, ClusterPlan):
        arguments = target, input_rows, weight, bias, residual, activation, paired, plan
        launch_clusters(*arguments, ahead=ahead, overlap=overlap)
        return target
    assert isinstance(weight, torch.Tensor)  # noqa: S101 - few bits have plans by clusters alone
    if isinstance(plan, StreamKPlan):
        launch_stream_k(target, rows, weight, bias, residual, activation, paired, plan, overlap=overlap)
    elif isinstance(plan, WidePlan):
        launch_wide_gates(target, rows, weight, activation, plan, overlap=overlap)
    else:
        _launch(target, input_rows, weight, bias, residual, activation, paired, plan, ahead, overlap)
    return target


def deferred_rows(
    stream: torch.Tensor, norm: Norm | None, writer: Weight, reader: Weight, *, paired: bool = False
) -> DeferredRows | None:
    """Room for what a product leaves of the rows that it adds to, for the product that reads their norm.

    Args:
        stream: `[num_tokens, hidden]`, float16 or bfloat16.
        norm: that the second product wants.
        writer: weight of the first product, which adds to the stream.
        reader: weight of the second.
        paired: of the second, as in `warpgroup_linear`.

    Returns:
        None: the norm has a launch of its own, since a product is made by a kernel that has no part in it, or takes
        so long to read its weight that a launch beside that costs nothing.
    """
    if norm is None or not can_be_deferred(norm) or not isinstance(reader, torch.Tensor):
        return None
    if not isinstance(writer, torch.Tensor) or reader.nbytes > _MOST_READ_BYTES:
        return None
    plan = _plan(stream, writer, paired=False)
    num_sums = plan.num_sums(stream.shape[1]) if isinstance(plan, _WITH_NORMS) else None
    if num_sums is None or num_sums * len(stream) > _MOST_SUMS:
        return None
    if not isinstance(_plan(stream, reader, paired), _WITH_NORMS):
        return None
    return DeferredRows.like(stream, norm, num_sums)


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
    input_rows: NormedRows,
    weight: torch.Tensor,
    bias: torch.Tensor | None,
    residual: torch.Tensor | None,
    activation: Activation,
    paired: bool,
    plan: WarpgroupPlan,
    ahead: DeferredRows | None,
    overlap: bool,
) -> None:
    rows, due = rows_and_due(input_rows)
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
        **constants_of(ahead, due),
    )
    args = (
        output.data_ptr(),
        weight.data_ptr(),
        address(bias),
        rows.data_ptr(),
        address(residual),
        i32(num_tokens),
        i32(output.shape[1]),
        *arguments_of(ahead, due),
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
