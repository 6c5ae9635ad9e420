"""A residual stream and the norm that reads it next, in one launch."""

from dataclasses import dataclass

import torch

from pagedchat.jit.launch import f32, get_kernel, i32
from pagedchat.jit.variant import Constant
from pagedchat.ops.common.checks import check_same_type, check_shape
from pagedchat.ops.common.launch import (
    PIECE_BYTES,
    address,
    can_overlap,
    ceil_div,
    element_name,
    on_cuda,
    stream_of,
)
from pagedchat.ops.common.norm import Norm, check_norm

NAME = "add_norm"
_MAX_THREADS = 1024


@dataclass(frozen=True, slots=True)
class Update:
    """What is added to a residual stream: `scale * norm(rows + beside)`."""

    rows: torch.Tensor
    """`[num_rows, width]`, contiguous."""
    beside: torch.Tensor | None = None
    """Like `rows`: of the other half of a layer whose halves start from the same rows."""
    norm: Norm | None = None
    """None: there is none."""
    scale: float = 1.0

    def select(self, rows: torch.Tensor) -> "Update":
        """Some rows of it; `rows` are their numbers, int32 or int64."""
        beside = None if self.beside is None else self.beside.index_select(0, rows)
        return Update(self.rows.index_select(0, rows), beside, self.norm, self.scale)

    def value(self) -> torch.Tensor:
        """All of it, rounded after each operation as the models' own code does."""
        rows = self.rows if self.beside is None else self.rows + self.beside
        if self.norm is not None:
            rows = self.norm.apply(rows)
        return rows if self.scale == 1 else rows * self.scale


def add_norm(
    hidden: torch.Tensor,
    update: Update | torch.Tensor | None,
    norm: Norm | None,
    *,
    overlap: bool = False,
) -> torch.Tensor:
    """`hidden += update`, and the norm of the sum.

    Args:
        hidden: `[num_rows, width]`, contiguous, written.
        update: rows like `hidden`, or more about them; None adds nothing.
        norm: of the sum; None: none.
        overlap: the launch may begin before the kernel before it has ended, which makes `update`.

    Returns:
        `[num_rows, width]`; `hidden` itself if there is no norm.

    Raises:
        ValueError: shapes or types that do not go together.
    """
    check_shape("hidden", hidden, None, None)
    added = Update(update) if isinstance(update, torch.Tensor) else update
    _check(hidden, added, norm)
    if added is None and norm is None:
        return hidden
    if not has_kernel(hidden):
        rows = hidden if added is None else hidden.add_(added.value())
        return rows if norm is None else norm.apply(rows)
    return _launch(hidden, added, norm, overlap)


def _check(hidden: torch.Tensor, update: Update | None, norm: Norm | None) -> None:
    rows, beside = (None, None) if update is None else (update.rows, update.beside)
    for name, tensor in (("hidden", hidden), ("update", rows), ("update.beside", beside)):
        if tensor is not None:
            check_shape(name, tensor, *hidden.shape)
            check_same_type(name, tensor, hidden)
            if not tensor.is_contiguous():
                raise ValueError(f"{name} is not contiguous")
    for each in (norm, None if update is None else update.norm):
        if each is not None:
            check_norm(each, hidden)


def _launch(hidden: torch.Tensor, update: Update | None, norm: Norm | None, overlap: bool) -> torch.Tensor:
    first = None if update is None else update.norm
    constants: dict[str, Constant] = {"ELEMENT": element_name(hidden.dtype), "NORM": norm.constant if norm else 0}
    if first is not None:
        constants["UPDATE_NORM"] = first.constant
    normed = hidden if norm is None else torch.empty_like(hidden)
    kernel = get_kernel(NAME, hidden.device.index, None, **constants)
    args = (
        normed.data_ptr(),
        hidden.data_ptr(),
        address(update.rows if update else None),
        address(update.beside if update else None),
        address(norm.weight if norm else None),
        address(norm.bias if norm else None),
        address(first.weight if first else None),
        address(first.bias if first else None),
        i32(hidden.shape[1]),
        f32(norm.eps if norm else 0.0),
        f32(first.eps if first else 0.0),
        f32(update.scale if update else 1.0),
    )
    threads = 32 * ceil_div(hidden.shape[1] * hidden.itemsize, 32 * PIECE_BYTES)
    overlap = overlap and can_overlap(hidden.device)
    kernel.launch(len(hidden), threads, args, stream=stream_of(hidden), overlap=overlap)
    return normed


def has_kernel(rows: torch.Tensor) -> bool:
    """Whether rows `[..., width]` are normed by the kernel; others are by torch, on a GPU too."""
    num_bytes = rows.shape[-1] * rows.itemsize
    return on_cuda(rows) and num_bytes % PIECE_BYTES == 0 and num_bytes <= _MAX_THREADS * PIECE_BYTES
