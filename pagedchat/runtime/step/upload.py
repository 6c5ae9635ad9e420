"""Small tensors of a step on their way to the device: many of them, one copy.

Every copy costs the host some microseconds, and one from pageable memory makes it wait for the device besides. So
what a step needs is laid end to end in pinned memory, copied once, and cut into views on the device. Torch's host
allocator hands the pinned memory out again only when the copy is done.
"""

from array import array
from collections.abc import Iterable

import torch

_ALIGNMENT = 16
"""Bytes; kernels read 16 at a time."""


def int32(values: Iterable[int]) -> torch.Tensor:
    """A CPU tensor of a list; several times as fast as `torch.tensor`."""
    return _tensor(array("i", values), torch.int32)


def int64(values: Iterable[int]) -> torch.Tensor:
    """A CPU tensor of a list; several times as fast as `torch.tensor`."""
    return _tensor(array("q", values), torch.int64)


def _tensor(values: "array[int]", dtype: torch.dtype) -> torch.Tensor:
    return torch.frombuffer(values, dtype=dtype) if values else torch.empty(0, dtype=dtype)


def upload(pieces: list[torch.Tensor], device: torch.device) -> list[torch.Tensor]:
    """The same tensors on the device.

    Args:
        pieces: on the CPU, of one element type, any shapes.
        device: where they go; on a CPU they are returned as they are.

    Returns:
        Contiguous tensors; on a GPU each at an address that 16 divides, and the copy is queued, not done.
    """
    if device.type == "cpu" or not pieces:
        return pieces
    dtype = pieces[0].dtype
    step = _ALIGNMENT // dtype.itemsize
    starts = [0]
    for piece in pieces:
        starts.append(starts[-1] + -(-piece.numel() // step) * step)
    staging = torch.empty(starts[-1], dtype=dtype, pin_memory=True)
    for piece, start in zip(pieces, starts, strict=False):
        staging[start : start + piece.numel()].view(piece.shape).copy_(piece)
    there = staging.to(device, non_blocking=True)
    return [there[start : start + p.numel()].view(p.shape) for p, start in zip(pieces, starts, strict=False)]
