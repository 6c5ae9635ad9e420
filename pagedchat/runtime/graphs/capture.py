"""A step as a CUDA graph: recorded once, then started with one call. On a CPU it is simply run, for tests.

Before that its kernels must be there. They are found by a rehearsal, and can be built while others do something
else.
"""

import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from typing import Protocol

import torch

from pagedchat.errors import PagedChatError
from pagedchat.jit.build_ahead import BuildAhead
from pagedchat.jit.launch import build_ahead, rehearse
from pagedchat.runtime.graphs.decode.steps import Step

_one_at_a_time = threading.Lock()
"""A capture takes note of what the whole process does on its stream's device; two must not meet."""


class Replayable(Protocol):
    """A step that is ready to run."""

    logits: torch.Tensor
    """`[num_seqs, vocab_size]` of the last run, or `[num_seqs, 0]`, see `Step`; another run, or one of another
    bucket, overwrites them."""
    step: Step
    """What it was made of."""

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

    def try_out(self, step: Step) -> None:
        """Run a step once, so that all it needs is loaded, and wait for it.

        Raises:
            RuntimeError, PagedChatError: it cannot run.
        """
        with self._aside() as stream:
            step()
            if stream is not None:
                stream.synchronize()

    def capture(self, step: Step) -> Replayable:
        """Record a step that was tried out; it is to be started once before it is of use (`start`).

        Raises:
            RuntimeError, PagedChatError: it cannot be captured.
        """
        with self._aside() as stream:
            return _Plain(step) if stream is None else _Captured(step, self._pool)

    def start(self, captured: Replayable) -> None:
        """Start what was recorded and wait for it: a graph's first start takes longest. Nothing on a CPU.

        Raises:
            RuntimeError: it cannot run.
        """
        with self._aside() as stream:
            if stream is not None:
                captured.replay()
                stream.synchronize()

    @contextmanager
    def _aside(self) -> Iterator["torch.cuda.Stream | None"]:
        """A stream that what is queued precedes, and what will be queued follows; None on a CPU."""
        if self._stream is None:
            yield None
            return
        current = torch.cuda.current_stream(self._device)
        with _one_at_a_time:
            self._stream.wait_stream(current)
            with torch.cuda.stream(self._stream):
                yield self._stream
            current.wait_stream(self._stream)


@torch.inference_mode()
def build_kernels_of(
    steps: Iterable[Callable[[], Step]], device: torch.device, *, quietly: bool = False
) -> BuildAhead | None:
    """Begin to build them in the background; None where there are no kernels.

    Args:
        steps: each is made and run once without its kernels, on the current stream: products by a library are
            made of whatever is in memory. One that cannot be made is passed over: who captures it is told why.
        device: where they run.
        quietly: see `BuildAhead`.
    """
    if device.type != "cuda":
        return None
    with rehearse() as wanted:
        for make in steps:
            with suppress(RuntimeError, PagedChatError):
                make()()
    return build_ahead(wanted, device.index, quietly=quietly)


class _Captured:
    def __init__(self, step: Step, pool: object) -> None:
        graph = torch.cuda.CUDAGraph()
        # Other threads may allocate pinned memory or load kernels meanwhile.
        graph.capture_begin(pool=pool, capture_error_mode="thread_local")  # type: ignore[arg-type]
        try:
            self.logits = step()
        except BaseException:
            with suppress(RuntimeError):  # that this one is of no use; why is being told
                graph.capture_end()
            raise
        graph.capture_end()
        self.replay = graph.replay
        self.step = step
        self._keeps = graph


class _Plain:
    def __init__(self, step: Step) -> None:
        self.step = step
        self.logits = torch.empty(0)

    @torch.inference_mode()
    def replay(self) -> None:
        self.logits = self.step()
