"""A step as a CUDA graph: recorded once, then started with one call. On a CPU it is simply run, for tests."""

import threading
from typing import Protocol

import torch

from pagedchat.runtime.graphs.decode.steps import Step

_one_at_a_time = threading.Lock()
"""A capture takes note of what the whole process does on its stream's device; two must not meet."""


class Replayable(Protocol):
    """A step that is ready to run."""

    logits: torch.Tensor
    """`[num_seqs, vocab_size]` of the last run, or `[num_seqs, 0]`, see `Step`; another run, or one of another
    bucket, overwrites them."""

    def replay(self) -> None:
        """Queue the step on the current stream."""
        ...


class GraphRecorder:
    """Captures steps. All share one memory pool, so only one of them may run at a time.

    Args:
        device: where they run.
    """

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._on_gpu = device.type == "cuda"
        self._pool = torch.cuda.graph_pool_handle() if self._on_gpu else None
        self._stream = torch.cuda.Stream(device) if self._on_gpu else None  # type: ignore[no-untyped-call]

    def record(self, step: Step) -> Replayable:
        """Run a step once, so that all it needs is loaded, and capture it.

        Raises:
            RuntimeError, PagedChatError: it cannot run, or not be captured.
        """
        if self._stream is None:
            return _Plain(step)
        with _one_at_a_time:
            self._stream.wait_stream(torch.cuda.current_stream(self._device))
            with torch.cuda.stream(self._stream):
                step()
                self._stream.synchronize()
                captured = _Captured(step, self._pool)
            torch.cuda.current_stream(self._device).wait_stream(self._stream)
        return captured


class _Captured:
    def __init__(self, step: Step, pool: object) -> None:
        graph = torch.cuda.CUDAGraph()
        # Other threads may allocate pinned memory or load kernels meanwhile.
        graph.capture_begin(pool=pool, capture_error_mode="thread_local")  # type: ignore[arg-type]
        try:
            self.logits = step()
        finally:
            graph.capture_end()
        self.replay = graph.replay
        self._keeps = (graph, step)


class _Plain:
    def __init__(self, step: Step) -> None:
        self._step = step
        self.logits = torch.empty(0)

    def replay(self) -> None:
        self.logits = self._step()
