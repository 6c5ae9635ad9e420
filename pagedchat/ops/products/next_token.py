"""The end of a decode step of a few sequences: the last norm, the product with the vocabulary, the next tokens."""

import torch

from pagedchat.jit.driver import gpu
from pagedchat.jit.launch import f32, get_kernel, i32
from pagedchat.ops.common.checks import check_dtype, check_same_type, check_shape
from pagedchat.ops.common.launch import address, on_cuda
from pagedchat.ops.common.norm import Norm, check_norm
from pagedchat.ops.products.add_norm import add_norm
from pagedchat.ops.products.few_rows_plan import FewRowsPlan, plan_few_rows_head
from pagedchat.ops.products.small_batch_launch import ProductLaunch, digits_of, product_constants, streamed_launch
from pagedchat.ops.products.small_batch_linear import has_kernels_for
from pagedchat.ops.products.small_batch_plan import head_shared_bytes
from pagedchat.ops.products.streamed_plan import StreamPlan
from pagedchat.ops.quantized.multiply import multiply
from pagedchat.ops.quantized.weight import Weight, check_weight, form_of
from pagedchat.ops.sampling.decode_state import DecodeState, advance_by_argmax, state_addresses

NAME = "next_token"
STREAMED = "streamed_vocabulary"
_THREAD_BLOCKS = 2
"""Of `logits_argmax` on a multiprocessor: enough to keep the memory busy, few enough to share the norm's work."""


def logits_argmax(
    state: DecodeState,
    logits: torch.Tensor,
    input_rows: torch.Tensor,
    weight: Weight,
    *,
    norm: Norm | None = None,
    best: torch.Tensor,
    overlap: bool = False,
) -> None:
    """The last norm and product; every row's most likely token is its next one, and the state moves on.

    Args:
        state: written.
        logits: `[num_tokens, vocab_size]`, written.
        input_rows: `[num_tokens, in_features]`.
        weight: `[vocab_size, in_features]`, of few bits or of the rows' type.
        norm: of the input rows.
        best: `[num_tokens]` or more, int64, zero between launches.
        overlap: as in `small_batch_linear`.

    Raises:
        ValueError: shapes or types that do not go together.
    """
    state.check()
    num_tokens = len(state.token_ids)
    check_shape("input_rows", input_rows, num_tokens, weight.shape[1])
    check_shape("logits", logits, num_tokens, weight.shape[0])
    check_dtype("best", best, torch.int64)
    check_weight("weight", weight, input_rows)
    check_same_type("logits", logits, input_rows)
    if norm is not None:
        check_norm(norm, input_rows)
    rows, launch = input_rows, None
    if on_cuda(input_rows) and has_kernels_for(input_rows):
        plan = _plan(input_rows, weight, norm)
        if plan.norm_apart and norm is not None:
            rows, norm = add_norm(input_rows, None, norm, overlap=overlap), None
        launch = _head_launch(plan, rows, weight, norm)
    if launch is not None:
        _launch_head(launch, state, logits, rows, weight, norm, best, overlap)
        return
    multiply(rows if norm is None else add_norm(rows, None, norm, overlap=overlap), weight, out=logits)
    advance_by_argmax(state, logits, overlap=overlap)


def _plan(rows: torch.Tensor, weight: Weight, norm: Norm | None) -> FewRowsPlan:
    of_gpu = gpu(rows.device.index)
    form = form_of(weight)
    return plan_few_rows_head(rows.shape[1], len(weight), len(rows), normed=norm is not None, gpu=of_gpu, form=form)


def _head_launch(plan: FewRowsPlan, rows: torch.Tensor, weight: Weight, norm: Norm | None) -> ProductLaunch | None:
    if isinstance(plan.plan, StreamPlan):
        return streamed_launch(STREAMED, plan.plan, rows, weight, norm)
    if plan.plan is None:
        return None
    constants = {**product_constants(rows, norm), **plan.plan.constants}
    kernel = get_kernel(NAME, rows.device.index, "logits_argmax", **constants)
    shared = head_shared_bytes(rows.shape[1], plan.plan, norm is not None)
    kernel.allow_shared(shared)
    num_multiprocessors = gpu(rows.device.index).num_multiprocessors
    return ProductLaunch(kernel, _THREAD_BLOCKS * num_multiprocessors, plan.plan.num_threads, shared)


def _launch_head(
    launch: ProductLaunch,
    state: DecodeState,
    logits: torch.Tensor,
    rows: torch.Tensor,
    weight: Weight,
    norm: Norm | None,
    best: torch.Tensor,
    overlap: bool,
) -> None:
    args = (
        *state_addresses(state),
        logits.data_ptr(),
        best.data_ptr(),
        state.arrivals.data_ptr(),
        digits_of(weight),
        rows.data_ptr(),
        address(norm.weight if norm else None),
        address(norm.bias if norm else None),
        i32(rows.shape[0]),
        i32(weight.shape[0]),
        i32(len(state.history)),
        f32(norm.eps if norm else 0.0),
    )
    launch.run(args, rows, overlap)
