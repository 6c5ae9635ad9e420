"""Scratch memory of the decode kernels: partial states and arrival counters."""

from functools import cache

import torch

from pagedchat.ops.common.launch import current_stream

_counters: dict[tuple[int, int], torch.Tensor] = {}
_MIN_COUNTERS = 1 << 16
_CAPTURED = -1


def partial_states(query: torch.Tensor, max_parts: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Where `max_parts` thread blocks leave their share of each row.

    Args:
        query: `[num_seqs, num_heads, head_size]`.
        max_parts: of a row; with one there is nothing to leave.

    Returns:
        Outputs, `[num_seqs, num_heads, max_parts, head_size]`, and states (top, total),
        `[num_seqs, num_heads, max_parts, 2]`, float32.
    """
    if max_parts == 1:
        return _nothing(query.device), _nothing(query.device)
    num_seqs, num_heads, head_size = query.shape
    rows = (num_seqs, num_heads, max_parts)
    outputs = torch.empty((*rows, head_size), dtype=torch.float32, device=query.device)
    return outputs, torch.empty((*rows, 2), dtype=torch.float32, device=query.device)


@cache
def _nothing(device: torch.device) -> torch.Tensor:
    return torch.empty(0, dtype=torch.float32, device=device)


def arrival_counters(device: torch.device, count: int) -> torch.Tensor:
    """At least `count` int32 zeros that kernels leave at zero.

    Each stream has its own, as launches of different streams may run side by side. All CUDA graphs of a device
    share one, made before the first capture, since what is captured only runs on replay; replay them one at a time.
    """
    capturing = torch.cuda.is_current_stream_capturing()
    stream = _CAPTURED if capturing else current_stream(device)
    counters = _counters.get((device.index, stream))
    if counters is not None and len(counters) >= count:
        return counters
    if capturing:
        return torch.zeros(count, dtype=torch.int32, device=device)  # belongs to the graph, zeroed by it
    for key in ((device.index, stream), (device.index, _CAPTURED)):
        _counters[key] = torch.zeros(max(count, _MIN_COUNTERS), dtype=torch.int32, device=device)
    return _counters[device.index, stream]
