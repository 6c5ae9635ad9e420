"""Time of GPU work by CUDA events, and of the host's part by the clock.

A small kernel is over before the host can launch the next one, so its calls are captured in a CUDA graph and the
replay is timed: what remains is the kernel and the gap between two nodes, as in a captured decode step. Each call
of a graph has its own input set, and the sets together exceed the L2 cache, so every call reads device memory.
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import median

import torch

Call = Callable[[], object]

MIN_ROTATED_BYTES = 192 << 20
_CALLS_PER_GRAPH = 8
_BUDGET_US = 60_000.0
_WARM_UPS = 3


@dataclass(frozen=True, slots=True)
class Timing:
    """Microseconds a call, over several samples."""

    us: float
    us_min: float
    us_max: float
    num_samples: int

    @classmethod
    def of(cls, samples_us: Sequence[float], calls_per_sample: int) -> "Timing":
        """The median and the extremes of samples that each timed `calls_per_sample` calls."""
        each = [sample / calls_per_sample for sample in samples_us]
        return cls(median(each), min(each), max(each), len(each))


def rotated_bytes(l2_bytes: int) -> int:
    """How much input a graph must go through until what it read first has left an L2 of `l2_bytes`."""
    return max(MIN_ROTATED_BYTES, 3 * l2_bytes)


def num_sets(bytes_a_call: int, rotated: int) -> int:
    """Input sets that together reach `rotated` bytes; at least two, so that no call follows itself."""
    return max(2, -(-rotated // bytes_a_call))


def num_rounds(num_calls: int) -> int:
    """How often a graph goes over its calls: few large calls are repeated, many small ones are not."""
    return max(1, _CALLS_PER_GRAPH // num_calls)


def num_samples(one_us: float) -> int:
    """Samples that fit in the time budget when the first took `one_us`: 10 to 200."""
    return int(min(200, max(10, _BUDGET_US / max(one_us, 1.0))))


def time_in_graph(calls: Sequence[Call]) -> Timing:
    """Time of a call when all of `calls` are nodes of one CUDA graph, one after another."""
    rounds = num_rounds(len(calls))
    graph = _capture(calls, rounds)
    timing = _sample(graph.replay, rounds * len(calls))
    graph.reset()
    return timing


def time_on_stream(calls: Sequence[Call]) -> Timing:
    """Time of a call on the current stream, without a graph: for work that is long or crosses to the host."""
    rounds = num_rounds(len(calls))

    def all_calls() -> None:
        for _ in range(rounds):
            for call in calls:
                call()

    return _sample(all_calls, rounds * len(calls))


def time_host(calls: Sequence[Call], num_times: int = 50) -> float:
    """Median microseconds until one eager call returns, the GPU idle when it begins."""
    samples = []
    for number in range(num_times):
        call = calls[number % len(calls)]
        torch.cuda.synchronize()
        started = time.perf_counter()
        call()
        samples.append((time.perf_counter() - started) * 1e6)
    torch.cuda.synchronize()
    return median(samples)


def _capture(calls: Sequence[Call], rounds: int) -> torch.cuda.CUDAGraph:
    stream = torch.cuda.Stream()  # type: ignore[no-untyped-call]
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for call in calls[:2]:  # what an op does only once (compile, load, choose a plan) cannot be captured
            call()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        # Results stay alive to the end, so that no call writes where another has just written.
        _ = [call() for _ in range(rounds) for call in calls]
    return graph


def _sample(work: Callable[[], None], calls_per_sample: int) -> Timing:
    for _ in range(_WARM_UPS):
        work()
    count = num_samples(_elapsed_us(work))
    return Timing.of([_elapsed_us(work) for _ in range(count)], calls_per_sample)


def _elapsed_us(work: Callable[[], None]) -> float:
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))  # type: ignore[no-untyped-call]
    start.record()
    work()
    end.record()
    end.synchronize()
    return float(start.elapsed_time(end)) * 1e3
