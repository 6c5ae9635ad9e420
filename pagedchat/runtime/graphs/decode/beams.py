"""Beam searches on the device: a step chooses who goes on, and the one after it carries that out as it begins.

So the next step is begun before the host knows any of it. The host does the same in its books a step later, by what
it reads from pinned memory. What a step has chosen changes nothing that is left when the step after is not wanted:
only with that are blocks copied and tables changed, and the host is told whether they were.

Steps that do all of this are made of those that leave logits and captured once more (`beam_step`), for each number
of searches; of searches this knows what `engine.output.RunningSearch` says.
"""

import logging

import numpy as np
import torch

from pagedchat.engine.output import Ranked, RunningSearch
from pagedchat.errors import PagedChatError
from pagedchat.ops.cache.copy_blocks import has_whole_pages
from pagedchat.ops.sampling.choose_beams import RANKED, pack_head
from pagedchat.ops.sampling.kernels import MAX_BEAMS, MAX_LIKELY
from pagedchat.runtime.attention.cuda_backend import CudaAttention
from pagedchat.runtime.graphs.capture import GraphRecorder, Replayable
from pagedchat.runtime.graphs.decode.ahead import RunningBeams, RunningStep
from pagedchat.runtime.graphs.decode.beam_step import BeamStep
from pagedchat.runtime.graphs.decode.buckets import Bucket
from pagedchat.runtime.graphs.decode.state_buffers import HISTORY_LEN, StateBuffers, no_rows
from pagedchat.runtime.step.logprobs import NOTHING
from pagedchat.runtime.step.upload import int32, upload

log = logging.getLogger(__name__)

_RANKED_BYTES = MAX_LIKELY * RANKED.itemsize
"""Of a search's continuations in a step."""
_MOST_KEPT = 8
"""Captured steps."""
_Key = tuple[Replayable, int, int]
"""The step that leaves logits, searches, and tokens of a row that they rank, at most."""
_Captured = tuple[BeamStep, Replayable]


class BeamSteps:
    """Has steps choose beams.

    Args:
        buffers: the steps' memory.
        max_num_seqs: rows of a step, at most.
        backend: its cache.
    """

    def __init__(self, buffers: StateBuffers, max_num_seqs: int, backend: CudaAttention) -> None:
        self._buffers = buffers
        self._max_num_seqs = max_num_seqs
        self._backend = backend
        self._ranked: torch.Tensor | None = None
        """Of all steps, made for the first one: those that nobody wants any more may still write to it."""
        self._recorder = GraphRecorder(backend.device)
        self._captured: dict[_Key, _Captured | None] = {}
        """The last ones to be wanted for the first time; None for what cannot be captured."""
        self.serves = backend.device.type != "cuda" or has_whole_pages(backend.cache)
        """Whether it can."""

    def forget(self) -> None:
        """All captured steps: those that they are made of are gone."""
        self._captured.clear()

    def prepare(self, running: RunningStep, searches: list[RunningSearch]) -> None:
        """Queue telling the device of the beams of a batch that is new to it, and have its step choose among them.

        Where such a step has to be captured, what is in the buffers is lost. Where it cannot be, nothing is done.

        Args:
            running: its step, not begun yet.
            searches: all of them.
        """
        device, num_rows = self._backend.device, running.bucket.num_seqs
        most = 1 << (max(search.num_choices for search in searches) - 1).bit_length()
        key = running.step, len(searches), most
        if key not in self._captured:
            self._captured[key] = self._capture(running.bucket, key)
            if len(self._captured) > _MOST_KEPT:
                del self._captured[next(iter(self._captured))]
        captured = self._captured[key]
        if captured is None:
            return
        row_of = {id(sequence): row for sequence, row in zip(running.sequences, running.rows, strict=True)}
        standing = [search.standing() for search in searches]
        rows = [[row_of[id(sequence)] for sequence, _ in beams] for beams in standing]
        counts = [NOTHING] * num_rows
        for search, of_search in zip(searches, rows, strict=True):
            for row in of_search:
                counts[row] = search.num_choices
        heads = [pack_head(each.width, each.num_choices, sorted(each.stop_token_ids)) for each in searches]
        sums = np.zeros((len(searches), MAX_BEAMS))
        for i, beams in enumerate(standing):
            sums[i, : len(beams)] = [cum_logprob for _, cum_logprob in beams]
        padded = [row for of_search in rows for row in of_search + [0] * (MAX_BEAMS - len(of_search))]
        numbers = [int32(counts), int32(padded), int32(number for head in heads for number in head)]
        step, running.step = captured
        step.begin(*upload(numbers, device), *upload([torch.from_numpy(sums)], device))
        running.beams = RunningBeams(list(searches), self._ranked_of(len(searches)).numpy().view(RANKED))

    def _capture(self, bucket: Bucket, key: _Key) -> _Captured | None:
        logits_of, num_searches, most = key
        rows, ranked = self._buffers.state(bucket), self._ranked_of(num_searches)
        step = BeamStep(logits_of.step, rows, self._backend, ranked, most)
        try:
            self._buffers.upload(bucket, no_rows(), 0)
            self._recorder.try_out(step)
            return step, self._recorder.capture(step)
        except (RuntimeError, PagedChatError) as error:
            log.warning("Steps of beams are not captured: %s", error)
            return None

    def _ranked_of(self, num_searches: int) -> torch.Tensor:
        """`[HISTORY_LEN, num_searches, _RANKED_BYTES]`, in pinned memory."""
        if self._ranked is None:
            size = (HISTORY_LEN, self._max_num_seqs, _RANKED_BYTES)
            self._ranked = torch.zeros(size, dtype=torch.uint8, pin_memory=self._backend.device.type == "cuda")
        return self._ranked[:, :num_searches]

    def read(self, running: RunningStep, beams: RunningBeams) -> list[list[Ranked]]:
        """What a step that is done has chosen from, for each search."""
        ranked = beams.ranked[running.number % HISTORY_LEN]
        return [each[: search.num_choices].tolist() for search, each in zip(beams.searches, ranked, strict=True)]
