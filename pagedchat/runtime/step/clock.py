"""How long each phase of a step took, without waiting for the device between the phases."""

import time
from itertools import pairwise

import torch


class StepClock:
    """Starts when it is made; phases end at `mark`, the last one at `finish`.

    On a GPU the marks are events among the work that is queued, and only `finish` waits. What runs on another
    stream beside the forward pass (swaps) counts where it holds the forward pass up.

    Args:
        device: where the step runs.
    """

    def __init__(self, device: torch.device) -> None:
        self._stream = torch.cuda.current_stream(device) if device.type == "cuda" else None
        self._events: list[torch.cuda.Event] = []
        self._times: list[float] = []
        self.mark()

    def mark(self) -> None:
        """A phase ends, and the next one begins."""
        self._times.append(time.perf_counter())
        if self._stream is not None:
            event = torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]
            event.record(self._stream)
            self._events.append(event)

    def finish(self) -> list[float]:
        """Seconds of each phase; the last one ends when all is done, here and on the device."""
        if self._stream is not None:
            self._events[-1].synchronize()
        begin, end = self._times[0], time.perf_counter()
        if self._stream is None:
            return [later - earlier for earlier, later in pairwise([*self._times, end])]
        phases = [earlier.elapsed_time(later) / 1000 for earlier, later in pairwise(self._events)]
        return [*phases, max(0.0, end - begin - sum(phases))]
