"""Beam searches on the device: launches behind the graph choose who goes on, one before the next carries it out.

So the next step is begun before the host knows any of it. The host does the same in its books a step later, by what
it reads from pinned memory. What a step has chosen changes nothing that is left when the step after is not wanted:
only with that are blocks copied and tables changed (`move`), and the host is told whether they were.

Knows no graphs, and of searches what `engine.output.RunningSearch` says.
"""

import numpy as np
import torch

from pagedchat.engine.output import Ranked, RunningSearch
from pagedchat.ops.cache.copy_blocks import has_whole_pages
from pagedchat.ops.cache.move_beams import move_beams
from pagedchat.ops.sampling.choose_beams import RANKED, BeamState, choose_beams, pack_head
from pagedchat.ops.sampling.kernels import MAX_BEAMS, MAX_LIKELY
from pagedchat.ops.sampling.top_logprobs import TopLogprobs, top_logprobs
from pagedchat.runtime.attention.cuda_backend import CudaAttention
from pagedchat.runtime.graphs.decode.ahead import RunningBeams, RunningStep
from pagedchat.runtime.graphs.decode.state_buffers import HISTORY_LEN, StateBuffers
from pagedchat.runtime.step.logprobs import NOTHING
from pagedchat.runtime.step.upload import int32, upload

_RANKED_BYTES = MAX_LIKELY * RANKED.itemsize
"""Of a search's continuations in a step."""


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
        self.serves = backend.device.type != "cuda" or has_whole_pages(backend.cache)
        """Whether it can."""

    def prepare(self, running: RunningStep, searches: list[RunningSearch]) -> None:
        """Queue telling the device of the beams of a batch that is new to it.

        Args:
            running: its step.
            searches: all of them.
        """
        device, num_rows = self._backend.device, running.bucket.num_seqs
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
        there, of_rows, of_heads = upload(
            [int32(counts), int32(padded), int32(number for head in heads for number in head)], device
        )
        [of_sums] = upload([torch.from_numpy(sums)], device)
        state = BeamState(
            sources=torch.full((num_rows,), -1, dtype=torch.int32, device=device),
            next_tokens=torch.zeros(num_rows, dtype=torch.int32, device=device),
            rows=of_rows.view(len(searches), MAX_BEAMS),
            sums=of_sums,
            heads=of_heads.view(len(searches), -1),
        )
        most = max(search.num_choices for search in searches)
        likely = TopLogprobs.empty(num_rows, most, device)
        if self._ranked is None:
            size = (HISTORY_LEN, self._max_num_seqs, _RANKED_BYTES)
            self._ranked = torch.zeros(size, dtype=torch.uint8, pin_memory=device.type == "cuda")
        ranked, rows_of_step = self._ranked[:, : len(searches)], self._buffers.state(running.bucket)
        running.beams = RunningBeams(list(searches), state, there, likely, ranked, rows_of_step)

    @torch.inference_mode()
    def queue(self, running: RunningStep, beams: RunningBeams, logits: torch.Tensor) -> None:
        """Queue choosing who goes on, behind a step that is queued.

        Args:
            running: the step.
            beams: of it.
            logits: `[num_seqs, vocab_size]`, that it leaves.
        """
        top_logprobs(logits, beams.rows.token_ids, beams.counts, beams.likely)
        choose_beams(beams.state, beams.likely, beams.ranked[running.number % HISTORY_LEN])

    @torch.inference_mode()
    def move(self, beams: RunningBeams) -> None:
        """Queue carrying out what was chosen last: before the step after."""
        backend, state = self._backend, beams.state
        move_beams(backend.cache, beams.rows, state.sources, state.next_tokens, backend.shape.block_size)

    def read(self, running: RunningStep, beams: RunningBeams) -> list[list[Ranked]]:
        """What a step that is done has chosen from, for each search."""
        ranked = beams.ranked[running.number % HISTORY_LEN].numpy().view(RANKED)
        return [each[: search.num_choices].tolist() for search, each in zip(beams.searches, ranked, strict=True)]
