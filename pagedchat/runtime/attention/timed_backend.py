"""How long attention takes, where that can be told by the clock: on a CPU, when a call returns the work is done."""

import time
from typing import Any

import torch

from pagedchat.runtime.attention.backend import AttentionBackend


class TimedBackend:
    """An `AttentionBackend` that is another one, with the time spent in `write` and `attend` added up.

    Args:
        backend: does the work.
    """

    def __init__(self, backend: AttentionBackend) -> None:
        self._backend = backend
        self._seconds = 0.0

    @property
    def inner(self) -> AttentionBackend:
        """The one that does the work."""
        return self._backend

    def __getattr__(self, name: str) -> Any:
        return getattr(self._backend, name)

    def take_seconds(self) -> float:
        """The time since the last call."""
        seconds, self._seconds = self._seconds, 0.0
        return seconds

    def write(self, layer_idx: int, key: torch.Tensor, value: torch.Tensor) -> None:
        """See `AttentionBackend`."""
        started = time.perf_counter()
        self._backend.write(layer_idx, key, value)
        self._seconds += time.perf_counter() - started

    def attend(self, *args: Any, **options: Any) -> torch.Tensor:
        """See `AttentionBackend`."""
        started = time.perf_counter()
        output = self._backend.attend(*args, **options)
        self._seconds += time.perf_counter() - started
        return output
