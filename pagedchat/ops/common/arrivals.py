"""Memory through which thread blocks of a launch finish what others have begun. Knows no kernel."""

from typing import Literal

import torch

from pagedchat.ops.common.launch import current_stream

Purpose = Literal["attention", "products"]
_Kept = tuple[int, int, str]
"""Device, stream, and what it is for."""

_memory: dict[_Kept, torch.Tensor] = {}
_MIN_COUNTERS = 1 << 16
_MIN_WORDS = 1 << 20
_NOT_THERE = -1
"""All bits: `NOT_THERE` of kernels/common/published.cuh."""
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
    return _kept(device, count, purpose, 0, _MIN_COUNTERS)


def handover_words(device: torch.device, count: int) -> torch.Tensor:
    """At least `count` int32 words that are not there yet (all bits set), as kernels leave them; else as
    `arrival_counters`."""
    return _kept(device, count, "handover", _NOT_THERE, _MIN_WORDS)


def _kept(device: torch.device, count: int, purpose: str, value: int, fewest: int) -> torch.Tensor:
    capturing = torch.cuda.is_current_stream_capturing()
    stream = _CAPTURED if capturing else current_stream(device)
    found = _memory.get((device.index, stream, purpose))
    if found is not None and len(found) >= count:
        return found
    if capturing:
        return _filled(count, value, device)  # belongs to the graph, filled by it
    if (device.index, _CAPTURED, purpose) not in _memory:
        _memory[device.index, _CAPTURED, purpose] = _filled(max(count, fewest), value, device)
    found = _memory[device.index, stream, purpose] = _filled(max(count, fewest), value, device)
    return found


def _filled(count: int, value: int, device: torch.device) -> torch.Tensor:
    with torch.inference_mode(False):  # it stays, and whoever gets it next may be in no such mode
        return torch.full((count,), value, dtype=torch.int32, device=device)
