"""Beam searches on the device: a step chooses who goes on, and the one after it carries that out as it begins.

So the next step is begun before the host knows any of it. The host does the same in its books a step later, by what
it reads from pinned memory. What a step has chosen changes nothing that is left when the step after is not wanted:
only with that are blocks copied and tables changed, and the host is told whether they were.

Steps that do all of this are made of those that leave logits (`beam_store`); while there is none the engine
chooses. Of searches this knows what `engine.output.RunningSearch` says.
"""

from typing import cast

import numpy as np
import torch

from pagedchat.engine.output import Ranked, RunningSearch
from pagedchat.ops.cache.copy_blocks import has_whole_pages
from pagedchat.ops.sampling.choose_beams import RANKED, pack_head
from pagedchat.ops.sampling.kernels import MAX_BEAMS
from pagedchat.runtime.attention.cuda_backend import CudaAttention
from pagedchat.runtime.graphs.decode.ahead import RunningBeams, RunningStep
from pagedchat.runtime.graphs.decode.beam_step import BeamStep
from pagedchat.runtime.graphs.decode.beam_store import BeamKey, BeamStore
from pagedchat.runtime.graphs.decode.state_buffers import HISTORY_LEN
from pagedchat.runtime.step.logprobs import NOTHING
from pagedchat.runtime.step.upload import int32, upload


class BeamSteps:
    """Has steps choose beams.

    Args:
        store: the steps.
        backend: their cache.
    """

    def __init__(self, store: BeamStore, backend: CudaAttention) -> None:
        self._device = backend.device
        self.store = store
        """What is captured."""
        self.serves = backend.device.type != "cuda" or has_whole_pages(backend.cache)
        """Whether it can."""

    def prepare(self, running: RunningStep, searches: list[RunningSearch]) -> None:
        """Queue telling the device of the beams of a batch that is new to it, and have its step choose among them.

        Where such a step has to be captured, what is in the buffers is lost. Where there is none, by now or at all,
        nothing is done.

        Args:
            running: its step, not begun yet.
            searches: all of them.
        """
        num_rows, most = running.bucket.num_seqs, max(search.num_choices for search in searches)
        key = BeamKey(running.step, running.bucket, len(searches), 1 << (most - 1).bit_length())
        captured = self.store.find(key)
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
        step, running.step, device = cast(BeamStep, captured.step), captured, self._device
        step.begin(*upload(numbers, device), *upload([torch.from_numpy(sums)], device))
        running.beams = RunningBeams(list(searches), self.store.ranked_of(len(searches)).numpy().view(RANKED))

    def read(self, running: RunningStep, beams: RunningBeams) -> list[list[Ranked]]:
        """What a step that is done has chosen from, for each search."""
        ranked = beams.ranked[running.number % HISTORY_LEN]
        return [each[: search.num_choices].tolist() for search, each in zip(beams.searches, ranked, strict=True)]
