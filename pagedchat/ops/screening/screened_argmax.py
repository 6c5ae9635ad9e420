"""The end of a greedy decode step of up to 64 sequences that makes no logits: three launches.

A greedy token needs the highest logit and no other. By a copy of the vocabulary in 8-bit integers, which has half
of its bytes, a step learns what every logit is at most; the few rows that may have the highest one are then
multiplied as they are. The token is the one with the highest logit, to the rounding of the order of sums.
"""

import torch

from pagedchat.jit.driver import gpu
from pagedchat.jit.launch import f32, get_kernel, i32
from pagedchat.ops.common.checks import check_same_type, check_shape
from pagedchat.ops.common.launch import address, can_overlap, element_name, has_warpgroups, stream_of
from pagedchat.ops.common.norm import Norm, check_norm
from pagedchat.ops.sampling.decode_state import DecodeState, state_addresses
from pagedchat.ops.screening.plan import CHUNK, UNIT_ROWS, ScreenPlan, num_chunks, plan_screen
from pagedchat.ops.screening.screen import Screen

_PIECE = 8
_WARP = 32
_SCREENING_THREADS, _CHOOSING_THREADS = 288, 512


def screened_argmax(
    state: DecodeState, rows: torch.Tensor, screen: Screen, *, norm: Norm | None = None, overlap: bool = False
) -> None:
    """Every row's most likely token, the first of equals, is its next one, 0 in padding; the state moves on.

    Args:
        state: written.
        rows: `[num_seqs, hidden]`, float16 or bfloat16, contiguous; of what the head multiplies.
        screen: of the head.
        norm: of the rows, where they are not normed yet.
        overlap: the launches may begin before the kernel before them has ended, which makes the rows.

    Raises:
        ValueError: shapes or types that do not go together, or more rows than are screened.
    """
    state.check()
    head = screen.head
    check_shape("rows", rows, len(state.token_ids), head.shape[1])
    check_same_type("rows", rows, head)
    if norm is not None:
        check_norm(norm, rows)
    if not has_warpgroups(rows):
        normed = rows if norm is None else norm.apply(rows)
        likely = (normed.float() @ head.float().T).to(rows.dtype).max(dim=-1).indices.int()
        state.advance(torch.where(state.positions < 0, 0, likely))
        return
    plan = plan_screen(rows.shape[1], len(rows), gpu(rows.device.index).shared_bytes)
    if plan is None:
        raise ValueError(f"{len(rows)} rows of {rows.shape[1]} elements are not screened")
    overlap = overlap and can_overlap(rows.device)
    normed, digits, inputs = _rows(rows, norm, plan, overlap)
    estimates, highest = _vocabulary(rows, screen, plan, digits, inputs, overlap)
    _choose(state, normed, screen, plan, estimates, highest, inputs, overlap)


def _rows(
    rows: torch.Tensor, norm: Norm | None, plan: ScreenPlan, overlap: bool
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """The rows, normed; their digits `[num_chunks, 2 * columns, CHUNK]`, and bounds `[columns, 4]`."""
    num_rows, hidden = rows.shape
    chunks = num_chunks(hidden)
    normed = rows if norm is None else torch.empty_like(rows)
    digits = torch.empty(chunks, 2 * plan.columns, CHUNK, dtype=torch.int8, device=rows.device)
    inputs = torch.empty(plan.columns, 4, dtype=torch.float32, device=rows.device)
    kernel = get_kernel(
        "screen_rows",
        rows.device.index,
        ELEMENT=element_name(rows.dtype),
        NORM=0 if norm is None else norm.constant,
    )
    args = (
        normed.data_ptr(),
        digits.data_ptr(),
        inputs.data_ptr(),
        rows.data_ptr(),
        address(norm.weight if norm else None),
        address(norm.bias if norm else None),
        i32(num_rows),
        i32(hidden),
        i32(chunks),
        f32(norm.eps if norm else 0.0),
    )
    threads = -(-chunks * CHUNK // (_PIECE * _WARP)) * _WARP
    kernel.launch(plan.columns, threads, args, stream=stream_of(rows), overlap=overlap)
    return normed, digits, inputs


def _vocabulary(
    rows: torch.Tensor,
    screen: Screen,
    plan: ScreenPlan,
    digits: torch.Tensor,
    inputs: torch.Tensor,
    overlap: bool,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Estimates `[num_units, columns, UNIT_ROWS]`, bfloat16, and how high those of a unit can be,
    `[columns, num_units]`, float32."""
    count, chunks = screen.units.shape[:2]
    estimates = torch.empty(count, plan.columns, UNIT_ROWS, dtype=torch.bfloat16, device=rows.device)
    highest = torch.empty(plan.columns, count, dtype=torch.float32, device=rows.device)
    kernel = get_kernel(
        "screen_vocabulary",
        rows.device.index,
        "screen_vocabulary",
        ELEMENT=element_name(rows.dtype),
        **plan.constants,
    )
    kernel.allow_shared(plan.shared_bytes)
    args = (
        estimates.data_ptr(),
        highest.data_ptr(),
        screen.units.data_ptr(),
        screen.rows.data_ptr(),
        digits.data_ptr(),
        inputs.data_ptr(),
        i32(count),
        i32(chunks),
    )
    num_blocks = min(count, gpu(rows.device.index).num_multiprocessors)
    kernel.launch(
        num_blocks,
        _SCREENING_THREADS,
        args,
        stream=stream_of(rows),
        shared_bytes=plan.shared_bytes,
        overlap=overlap,
    )
    return estimates, highest


def _choose(
    state: DecodeState,
    rows: torch.Tensor,
    screen: Screen,
    plan: ScreenPlan,
    estimates: torch.Tensor,
    highest: torch.Tensor,
    inputs: torch.Tensor,
    overlap: bool,
) -> None:
    num_rows, hidden = rows.shape
    count = len(screen.units)
    kernel = get_kernel("choose_screened", rows.device.index, ELEMENT=element_name(rows.dtype))
    shared_bytes = rows.itemsize * hidden + 4 * count
    kernel.allow_shared(shared_bytes)
    args = (
        *state_addresses(state),
        state.arrivals.data_ptr(),
        estimates.data_ptr(),
        highest.data_ptr(),
        screen.rows.data_ptr(),
        inputs.data_ptr(),
        rows.data_ptr(),
        screen.head.data_ptr(),
        i32(plan.columns),
        i32(count),
        i32(hidden),
        i32(len(screen.head)),
        i32(len(state.history)),
    )
    kernel.launch(
        num_rows, _CHOOSING_THREADS, args, stream=stream_of(rows), shared_bytes=shared_bytes, overlap=overlap
    )
