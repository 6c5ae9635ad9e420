"""Batches in which sequences have drafts, run as captured steps: every token of a draft is a row.

What `engine.speculation.rows` makes of any batch for any runner is laid out here at once, without a sequence for
every row: a row differs from those beside it in token and position alone. Where rows differ in more (penalties
count the tokens before each of them), where rules or logprobs are wanted, or where prompts are in the batch, the
batch is left to that. Nothing is begun ahead: how far the sequences get is what the step finds out.
"""

import time
from dataclasses import dataclass
from itertools import accumulate, pairwise

import torch

from pagedchat.engine.output import ModelRunnerOutput, ScheduledSequence, SchedulerOutput
from pagedchat.engine.sequence import Sequence
from pagedchat.ops.sampling.sample_rows import pack_rows
from pagedchat.runtime.attention.cuda_backend import CudaAttention
from pagedchat.runtime.graphs.decode.buckets import verify_bucket, verify_buckets
from pagedchat.runtime.graphs.decode.done import Done
from pagedchat.runtime.graphs.decode.state_buffers import DraftRows, StateBuffers
from pagedchat.runtime.graphs.decode.store import Serving, StepStore
from pagedchat.runtime.step.block_moves import apply_block_ops
from pagedchat.runtime.step.sampler import choice_for, op_rows
from pagedchat.runtime.step.sampling_row import rows_of
from pagedchat.runtime.step.sizes import StepSizes


@dataclass(frozen=True, slots=True)
class BegunVerify:
    """A batch that is under way."""

    serving: Serving
    row_counts: list[int]
    """Of each part of the batch."""
    seconds: float
    """What beginning it took."""


class VerifySteps:
    """Runs batches with drafts.

    Args:
        store: has the steps, which others use too: one batch at a time.
        buffers: their memory.
        backend: the cache.
        sizes: of a step, at most.
    """

    def __init__(self, store: StepStore, buffers: StateBuffers, backend: CudaAttention, sizes: StepSizes) -> None:
        self._store, self._buffers, self._backend = store, buffers, backend
        self._max_num_seqs, self._model_len = sizes.num_seqs, sizes.model_len
        self._done = Done(backend.device) if backend.device.type == "cuda" else None
        self.num_replays = 0
        """Steps run."""

    def most_rows(self, sequences: list[Sequence], longest: int, wanted: int) -> int:
        """Rows of the largest step that is there for drafts of these; 0 if none is. What is not is noted, and made
        beside.

        Args:
            sequences: that decode.
            longest: tokens of the longest of them, its draft included.
            wanted: rows, at most.
        """
        choice, most = choice_for(sequences), 0
        for bucket in verify_buckets(longest, self._max_num_seqs, self._model_len):
            if self._store.serves(bucket, choice):
                most = bucket.num_seqs
            if bucket.num_seqs >= wanted:
                break
        return most

    def begin(self, batch: SchedulerOutput) -> BegunVerify | None:
        """Queue a batch on the device; None, with nothing done, for one of another kind."""
        started = time.perf_counter()
        parts = batch.scheduled
        sequences = [part.sequence for part in parts]
        if not _is_plain(parts, sequences):
            return None
        row_counts = [part.num_tokens for part in parts]
        longest = max([part.start + part.num_tokens for part in parts])
        bucket = verify_bucket(sum(row_counts), longest, self._max_num_seqs, self._model_len)
        serving = None if bucket is None else self._store.get(bucket, choice_for(sequences))
        if serving is None:
            return None
        if batch.block_ops:
            self._move_blocks(batch)
        self._backend.wait_for_swaps()
        self._buffers.upload_drafts(serving.bucket, _rows(parts, sequences, row_counts, serving))
        serving.step.replay()
        self.num_replays += 1
        if self._done is not None:
            self._done.record()
        return BegunVerify(serving, row_counts, time.perf_counter() - started)

    @torch.inference_mode()
    def _move_blocks(self, batch: SchedulerOutput) -> None:
        apply_block_ops(self._backend, batch.block_ops)

    def finish(self, begun: BegunVerify) -> ModelRunnerOutput:
        """Wait for the tokens of the batch begun last: one for every row."""
        launched = time.perf_counter()
        if self._done is not None:
            self._done.synchronize()
        waited = time.perf_counter()
        chosen = self._buffers.tokens(begun.serving.bucket, 0)
        ends = accumulate(begun.row_counts, initial=0)
        tokens = [chosen[start:end] for start, end in pairwise(ends)]
        return ModelRunnerOutput(tokens, 0.0, waited - launched, time.perf_counter() - waited, begun.seconds)


def _is_plain(parts: list[ScheduledSequence], sequences: list[Sequence]) -> bool:
    """Whether all of them decode, and no row differs from those of its sequence in more than token and position."""
    if not all(part.samples and part.num_tokens == len(part.draft) + 1 for part in parts):
        return False
    params = {id(seq.sampling_params): seq.sampling_params for seq in sequences}.values()
    return not any(each.penalises or each.has_rules or each.logprobs is not None for each in params)


def _rows(
    parts: list[ScheduledSequence], sequences: list[Sequence], row_counts: list[int], serving: Serving
) -> DraftRows:
    token_ids, positions = list[int](), list[int]()
    for seq, part in zip(sequences, parts, strict=True):
        token_ids.append(seq.token_ids[-1])
        token_ids += part.draft
        positions += range(part.start, part.start + part.num_tokens)
    sampling = pack_rows(op_rows(rows_of(sequences))) if serving.choice != "greedy" else None
    return DraftRows(token_ids, positions, [seq.block_table for seq in sequences], row_counts, sampling)
