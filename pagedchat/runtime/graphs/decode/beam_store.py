"""Captured steps whose rows are beams: of each step that leaves logits one more, for each number of searches."""

from typing import NamedTuple

import torch

from pagedchat.ops.sampling.choose_beams import RANKED
from pagedchat.ops.sampling.kernels import MAX_LIKELY
from pagedchat.runtime.attention.cuda_backend import CudaAttention
from pagedchat.runtime.graphs.capture import Replayable
from pagedchat.runtime.graphs.decode.beam_step import BeamStep
from pagedchat.runtime.graphs.decode.buckets import Bucket
from pagedchat.runtime.graphs.decode.state_buffers import HISTORY_LEN, StateBuffers, no_rows
from pagedchat.runtime.graphs.shelf import Shelf

_RANKED_BYTES = MAX_LIKELY * RANKED.itemsize
"""Of a search's continuations in a step."""
_MOST_KEPT = 8
"""Captured steps."""


class BeamKey(NamedTuple):
    """What a step of beams is for."""

    logits_of: Replayable
    """The step that leaves logits."""
    bucket: Bucket
    """Of that step."""
    num_searches: int
    most: int
    """Tokens of a row that a search ranks, at most."""


class BeamStore(Shelf[BeamKey]):
    """The steps that were wanted last.

    Args:
        buffers: the memory of the steps that leave logits.
        max_num_seqs: rows of a step, at most.
        backend: its cache.
        at_first_use: see `Shelf`.
    """

    def __init__(
        self, buffers: StateBuffers, max_num_seqs: int, backend: CudaAttention, *, at_first_use: bool = True
    ) -> None:
        super().__init__(backend.device, at_first_use=at_first_use)
        self._buffers = buffers
        self._max_num_seqs = max_num_seqs
        self._backend = backend
        self._ranked: torch.Tensor | None = None
        """Of all steps, made for the first one: those that nobody wants any more may still write to it."""

    def find(self, key: BeamKey) -> Replayable | None:
        """See `Shelf.find`. Others are let go where there are many: searches have any number of sizes."""
        found = super().find(key)
        if key in self:
            self._steps[key] = self._steps.pop(key)
            while len(self._steps) > _MOST_KEPT:
                del self._steps[next(iter(self._steps))]
        return found

    def ranked_of(self, num_searches: int) -> torch.Tensor:
        """`[HISTORY_LEN, num_searches, bytes]`, uint8, in pinned memory: what the last steps chose from."""
        if self._ranked is None:
            size = (HISTORY_LEN, self._max_num_seqs, _RANKED_BYTES)
            self._ranked = torch.zeros(size, dtype=torch.uint8, pin_memory=self._backend.device.type == "cuda")
        return self._ranked[:, :num_searches]

    def _make(self, key: BeamKey) -> BeamStep:
        rows, ranked = self._buffers.state(key.bucket), self.ranked_of(key.num_searches)
        return BeamStep(key.logits_of.step, rows, self._backend, ranked, key.most)

    def _kind(self, _key: BeamKey) -> str:
        return "beams"

    def _clear(self, key: BeamKey) -> None:
        self._buffers.upload(key.bucket, no_rows(), 0)

    def _what(self, key: BeamKey) -> str:
        return f"Steps of beams in {key.bucket.num_seqs} rows"
