"""What the logits of a decode step are at most, by the copy of its vocabulary: two launches, whoever chooses."""

from typing import NamedTuple

import torch

from pagedchat.jit.driver import gpu
from pagedchat.jit.launch import f32, get_kernel, i32
from pagedchat.ops.common.checks import check_same_type, check_shape
from pagedchat.ops.common.launch import address, can_overlap, element_name, stream_of
from pagedchat.ops.common.norm import Norm, check_norm
from pagedchat.ops.sampling.decode_state import DecodeState
from pagedchat.ops.screening.plan import CHUNK, UNIT_ROWS, ScreenPlan, num_chunks, plan_screen
from pagedchat.ops.screening.screen import Screen

_PIECE = 8
_WARP = 32
_THREADS = 288


class Screened(NamedTuple):
    """Of the rows of a batch, up to `columns` of them."""

    screen: Screen
    rows: torch.Tensor
    """`[num_rows, hidden]`, normed."""
    columns: int
    inputs: torch.Tensor
    """`[columns, 4]`, float32: `InputBounds` of kernels/screening/bounds.cuh."""
    estimates: torch.Tensor
    """`[num_units, columns, UNIT_ROWS]`, bfloat16."""
    highest: torch.Tensor
    """`[columns, num_units]`, float32: what those of a unit can be at most."""

    def addresses(self) -> tuple[int, ...]:
        """As the kernels that choose have them, tensors first."""
        tensors = (self.estimates, self.highest, self.screen.rows, self.inputs, self.rows, self.screen.head)
        return tuple(tensor.data_ptr() for tensor in tensors)

    def sizes(self) -> tuple[int, ...]:
        """The same, of the sizes behind them."""
        vocab_size, hidden = self.screen.head.shape
        return tuple(map(i32, (self.columns, len(self.screen.units), hidden, vocab_size)))


def check_screened(state: DecodeState, rows: torch.Tensor, screen: Screen, norm: Norm | None) -> None:
    """Refuse rows that do not go with a state, a head or a norm.

    Raises:
        ValueError: another shape or type.
    """
    state.check()
    check_shape("rows", rows, len(state.token_ids), screen.head.shape[1])
    check_same_type("rows", rows, screen.head)
    if norm is not None:
        check_norm(norm, rows)


def logits_in_torch(rows: torch.Tensor, screen: Screen, norm: Norm | None) -> torch.Tensor:
    """All of them, `[num_rows, vocab_size]`, of the type of the rows: where nothing is screened."""
    normed = rows if norm is None else norm.apply(rows)
    return (normed.float() @ screen.head.float().T).to(rows.dtype)


def screened(rows: torch.Tensor, screen: Screen, norm: Norm | None, *, overlap: bool) -> Screened:
    """Queue both.

    Args:
        rows: `[num_rows, hidden]`, float16 or bfloat16, contiguous, on a GPU with warpgroups; of what the head
            multiplies.
        screen: of the head.
        norm: of the rows, where they are not normed yet.
        overlap: the launches may begin before the kernel before them has ended.

    Raises:
        ValueError: more rows than are screened.
    """
    plan = plan_screen(rows.shape[1], len(rows), gpu(rows.device.index).shared_bytes)
    if plan is None:
        raise ValueError(f"{len(rows)} rows of {rows.shape[1]} elements are not screened")
    overlap = overlap and can_overlap(rows.device)
    normed, digits, inputs = _rows(rows, norm, plan, overlap)
    estimates, highest = _vocabulary(rows, screen, plan, digits, inputs, overlap)
    return Screened(screen, normed, plan.columns, inputs, estimates, highest)


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
        _THREADS,
        args,
        stream=stream_of(rows),
        shared_bytes=plan.shared_bytes,
        overlap=overlap,
    )
    return estimates, highest
