"""Counters for thread blocks of a launch that finish what others have begun. Knows no kernel."""

from typing import Literal

import torch

from pagedchat.ops.common.launch import current_stream

Purpose = Literal["attention", "products"]

_counters: dict[tuple[int, int, Purpose], torch.Tensor] = {}
_MIN_COUNTERS = 1 << 16
_CAPTURED = -1


def arrival_counters(device: torch.device, count: int, purpose: Purpose = "attention") -> torch.Tensor:
    """At least `count` int32 zeros that kernels leave at zero.

    Each stream has its own, as launches of different streams may run side by side. All CUDA graphs of a device
    share one, made before the first capture, since what is captured only runs on replay; replay them one at a time.
    That one stays for as long as the process: graphs know where it is.

    Args:
        device: a GPU.
        count: that a launch takes.
        purpose: kernels of one may begin while those of the other still count.
    """
    capturing = torch.cuda.is_current_stream_capturing()
    stream = _CAPTURED if capturing else current_stream(device)
    counters = _counters.get((device.index, stream, purpose))
    if counters is not None and len(counters) >= count:
        return counters
    if capturing:
        return _zeros(count, device)  # belongs to the graph, zeroed by it
    if (device.index, _CAPTURED, purpose) not in _counters:
        _counters[device.index, _CAPTURED, purpose] = _zeros(max(count, _MIN_COUNTERS), device)
    counters = _counters[device.index, stream, purpose] = _zeros(max(count, _MIN_COUNTERS), device)
    return counters


def _zeros(count: int, device: torch.device) -> torch.Tensor:
    return torch.zeros(count, dtype=torch.int32, device=device)
