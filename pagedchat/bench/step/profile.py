"""Kernels of running steps as CUPTI tells them through torch's profiler. Knows nothing of engines."""

from collections.abc import Callable

import torch
from torch._C._autograd import DeviceType
from torch.profiler import ProfilerActivity, profile

from pagedchat.bench.step.trace import Kernel


def trace_kernels(work: Callable[[], None]) -> list[Kernel]:
    """Run `work` and list everything that ran on the GPU meanwhile.

    Tracing lengthens what it looks at: kernels by little, gaps between them by about a microsecond each.
    """
    torch.cuda.synchronize()
    with profile(activities=[ProfilerActivity.CUDA]) as profiler:
        work()
        torch.cuda.synchronize()
    results = profiler.profiler.kineto_results
    return [
        Kernel(
            event.name(),
            event.start_ns() / 1e3,
            (event.start_ns() + event.duration_ns()) / 1e3,
            event.correlation_id(),
        )
        for event in results.events()
        if event.device_type() == DeviceType.CUDA
    ]
