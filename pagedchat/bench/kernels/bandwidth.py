"""What the memory and the link to the host can do: the limits that the kernels' figures are held against."""

from dataclasses import dataclass

import torch

from pagedchat.bench.kernels.timing import time_on_stream

_COPY_BYTES = 4 << 30
_LINK_BYTES = 512 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Bandwidths in GB/s, measured in the same run as the kernels."""

    copy: float
    """Device memory, bytes read and written by a large copy; a kernel that only reads can pass it."""
    to_host: float | None = None
    """From device to pinned host memory; None when nothing that is measured crosses the link."""
    from_host: float | None = None
    """From pinned host memory to the device."""


def measure_limits(link: bool) -> Limits:
    """Copy bandwidth, and with `link` that of the link to the host both ways."""
    copy = _copy_gb_s()
    if not link:
        return Limits(copy=copy)
    return Limits(copy=copy, to_host=_link_gb_s(to_host=True), from_host=_link_gb_s(to_host=False))


def _copy_gb_s() -> float:
    """Outside a graph: as a graph's node the same copy is slower."""
    free, _ = torch.cuda.mem_get_info()
    num_bytes = min(_COPY_BYTES, free // 4)
    source = torch.randint(0, 256, (num_bytes,), dtype=torch.uint8, device="cuda")
    target = torch.empty_like(source)
    return _gb_s(source, target, moved_bytes=2 * num_bytes)


def _link_gb_s(to_host: bool) -> float:
    host = torch.zeros(_LINK_BYTES, dtype=torch.uint8, pin_memory=True)
    device = torch.empty(_LINK_BYTES, dtype=torch.uint8, device="cuda")
    return _gb_s(*((device, host) if to_host else (host, device)), moved_bytes=_LINK_BYTES)


def _gb_s(source: torch.Tensor, target: torch.Tensor, *, moved_bytes: int) -> float:
    timing = time_on_stream([lambda: target.copy_(source, non_blocking=True)])
    return moved_bytes / timing.us / 1e3
