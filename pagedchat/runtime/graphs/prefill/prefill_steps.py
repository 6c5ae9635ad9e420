"""Chunks of prompts run as captured forward passes.

The host's part of such a step is filling one piece of pinned memory, one copy, one launch, and reading the tokens
from pinned memory when they are there.
"""

import time
from collections.abc import Iterator
from dataclasses import dataclass

import torch

from pagedchat.engine.output import ModelRunnerOutput, ScheduledSequence, SchedulerOutput
from pagedchat.engine.sequence import TokenLogprobs
from pagedchat.engine.tokens.logprobs import num_told
from pagedchat.jit.build_ahead import BuildAhead
from pagedchat.ops.ranks.company import Agree
from pagedchat.ops.sampling import sample as op
from pagedchat.ops.sampling.sample_rows import pack_rows
from pagedchat.ops.sampling.top_logprobs import TopLogprobs, top_logprobs
from pagedchat.runtime.attention.cuda_backend import CudaAttention
from pagedchat.runtime.graphs.capture import Replayable
from pagedchat.runtime.graphs.foreign_model import StepModel
from pagedchat.runtime.graphs.prefill.buckets import PrefillBucket, all_buckets, bucket_of, largest_bucket
from pagedchat.runtime.graphs.prefill.buffers import PrefillBuffers
from pagedchat.runtime.graphs.prefill.step import PrefillOutputs
from pagedchat.runtime.graphs.prefill.store import PrefillStore
from pagedchat.runtime.step.block_moves import apply_block_ops
from pagedchat.runtime.step.logprobs import asked_of, read
from pagedchat.runtime.step.rules import under_rules
from pagedchat.runtime.step.sampler import any_ruled, choice_for, counts_for, op_rows
from pagedchat.runtime.step.sampling_row import SamplingRow, rows_of
from pagedchat.runtime.step.sizes import StepSizes
from pagedchat.runtime.step.upload import int32, upload

_PATIENCE = 0.02
"""Seconds for which kernels are waited for at a time."""


@dataclass(frozen=True, slots=True)
class BegunPrefill:
    """Chunks that are being computed."""

    parts: list[ScheduledSequence]
    """As asked for."""
    sampled: list[ScheduledSequence]
    """Those of them whose next tokens are wanted: the first rows."""
    seconds: float
    """What beginning it took."""
    asked: list[int]
    """What is told of the next token of each of `sampled`; empty: nothing."""


class PrefillSteps:
    """Runs chunks of prompts, those of one step after those of another.

    Args:
        model: whose forward pass.
        backend: its cache.
        sizes: of a step, at most.
        at_first_use: see `Shelf`.
    """

    def __init__(
        self, model: StepModel, backend: CudaAttention, sizes: StepSizes, *, at_first_use: bool = True
    ) -> None:
        self._backend = backend
        self._sizes = sizes
        self._buffers = PrefillBuffers(largest_bucket(sizes), backend.shape.block_size, backend.device)
        self._outputs = PrefillOutputs(sizes.num_seqs, model.vocab_size, backend.shape.dtype, backend.device)
        self.store = PrefillStore(
            model, sizes.model_len, backend, self._buffers, self._outputs, at_first_use=at_first_use
        )
        """What is captured."""
        self._buckets_left: Iterator[PrefillBucket] = all_buckets(sizes)
        self._next: tuple[PrefillBucket, BuildAhead | None] | None = None
        """What `prepare_one_more` captures next, and its kernels."""
        on_gpu = backend.device.type == "cuda"
        self._done = torch.cuda.Event() if on_gpu else None  # type: ignore[no-untyped-call]
        self._told: TopLogprobs | None = None
        """Of the tokens of the step begun last, where it is asked for; in pinned memory."""
        self.num_replays = 0
        """Steps run."""

    @property
    def logits(self) -> torch.Tensor:
        """`[max_num_seqs, vocab_size]` of the step begun last, those of the chunks that sample first."""
        return self._outputs.logits(self._sizes.num_seqs)

    def chosen_by(self, begun: "BegunPrefill") -> torch.Tensor:
        """`[num_sampled]`, int32, in memory that host and device read: the next tokens, when the step is done."""
        return self._outputs.tokens[: len(begun.sampled)]

    # --- beforehand ---------------------------------------------------------------------------------

    def build_ahead(self, num_tokens: int) -> BuildAhead | None:
        """Begin to build, in the background, the kernels that `prepare` takes; None where it takes none.

        To be called while no step is under way.
        """
        bucket = bucket_of(self._sizes, num_tokens, 1, num_tokens)
        return None if bucket is None else self.store.build_ahead(bucket)

    @torch.inference_mode()
    def prepare(self, num_tokens: int, num_seqs: int = 1, context_len: int = 1) -> bool:
        """Capture what serves such a step, before there is any and while none is under way.

        Args:
            num_tokens: of all its chunks.
            num_seqs: chunks.
            context_len: tokens of the longest sequence.

        Returns:
            Whether that went well.
        """
        bucket = bucket_of(self._sizes, num_tokens, num_seqs, max(context_len, num_tokens // num_seqs))
        return bucket is not None and self.store.capture(bucket) is not None

    def want(self, num_tokens: int, context_len: int) -> None:
        """Have what serves a chunk of a sequence made beside whatever runs."""
        bucket = bucket_of(self._sizes, num_tokens, 1, context_len)
        if bucket is not None:
            self.store.note(bucket)

    def distrust(self) -> str:
        """See `PrefillStore.distrust`."""
        return self.store.distrust()

    @torch.inference_mode()
    def prepare_one_more(self, agree: Agree) -> int | None:
        """Capture one that has not been captured yet, if its kernels are built, while no step is under way.

        Args:
            agree: of all ranks, which capture the same.

        Returns:
            How many were captured, 0 or 1; None where none is left.
        """
        if self._next is None:
            bucket = next((bucket for bucket in self._buckets_left if bucket not in self.store), None)
            if bucket is None:
                return None
            self._next = bucket, self.store.build_ahead(bucket, quietly=True)
        bucket, kernels = self._next
        if not agree(kernels is None or kernels.wait(_PATIENCE)):
            return 0
        self._next = None
        self.store.capture(bucket)
        return 1

    # --- a step -------------------------------------------------------------------------------------

    def begin(self, batch: SchedulerOutput, *, by_now: bool = False) -> BegunPrefill | None:
        """Queue chunks on the device; None, with nothing done, if they are too many or cannot be captured.

        Args:
            batch: what the engine asks for, block moves included.
            by_now: nothing is captured for it, and nothing noted that would be of use: any pass with room will do.
        """
        started = time.perf_counter()
        sampled = [part for part in batch.scheduled if part.samples]
        parts = sampled + [part for part in batch.scheduled if not part.samples]
        found = None if any(map(num_told, parts)) else self._captured(parts, batch.num_tokens, by_now)
        if found is None:  # or logits of prompt tokens are wanted, and these steps have those of last tokens alone
            return None
        apply_block_ops(self._backend, batch.block_ops)
        self._backend.wait_for_swaps()
        sequences = [part.sequence for part in sampled]
        is_drawn = choice_for(sequences) != "greedy" or any_ruled(sequences)
        self._queue(*found, parts, rows_of(sequences) if is_drawn else [])
        asked = asked_of(part.sequence for part in sampled)
        if asked:
            self._look_up(asked)
        if self._done is not None:
            self._done.record()
        self.num_replays += 1
        return BegunPrefill(batch.scheduled, sampled, time.perf_counter() - started, asked)

    def pieces(self, parts: list[ScheduledSequence]) -> list[list[ScheduledSequence]]:
        """Chunks one by one, each cut so that captured passes serve it by now; empty where one cannot be."""
        if any(map(num_told, parts)):
            return []
        pieces = []
        for part in parts:
            bucket = bucket_of(self._sizes, 1, 1, part.start + part.num_tokens)
            most = 0 if bucket is None else self.store.most_tokens(bucket.context_len)
            if not most:
                return []
            pieces += [[piece] for piece in _cut(part, most)]
        return pieces

    def _captured(
        self, parts: list[ScheduledSequence], num_tokens: int, by_now: bool
    ) -> tuple[PrefillBucket, Replayable] | None:
        """What serves these chunks, of so many tokens together; None if nothing does."""
        longest = max([part.start + part.num_tokens for part in parts])
        bucket = bucket_of(self._sizes, num_tokens, len(parts), longest)
        if bucket is None:
            return None
        return self.store.there(bucket) if by_now else self.store.get(bucket)

    def _queue(
        self,
        bucket: PrefillBucket,
        step: Replayable,
        parts: list[ScheduledSequence],
        drawn: list[SamplingRow],
    ) -> None:
        """Queue chunks; the tokens of the first ones are drawn, one for each of `drawn`."""
        self._buffers.upload(bucket, parts, pack_rows(op_rows(drawn)) if drawn else None)
        step.replay()
        if drawn:
            self._draw(bucket, drawn)

    def finish(self, begun: BegunPrefill) -> ModelRunnerOutput:
        """Wait for the tokens of the step begun last. What counts as forward is the wait."""
        launched = time.perf_counter()
        if self._done is not None:
            self._done.synchronize()
        waited = time.perf_counter()
        remaining = iter(self.chosen_by(begun).tolist())
        token_ids = [[next(remaining)] if part.samples else [] for part in begun.parts]
        told: list[list[TokenLogprobs]] | None = None
        if begun.asked and self._told is not None:
            each = iter(read(self._told, range(len(begun.asked)), begun.asked))
            told = [next(each) if part.samples else [] for part in begun.parts]
        seconds = (0.0, waited - launched, time.perf_counter() - waited, begun.seconds)
        return ModelRunnerOutput(token_ids, *seconds, logprobs=told)

    def _look_up(self, asked: list[int]) -> None:
        """Queue looking up how likely the next tokens of the first rows are."""
        count, device = len(asked), self._backend.device
        [counts] = upload([int32(asked)], device)
        host, pinned = torch.device("cpu"), device.type == "cuda"
        self._told = TopLogprobs.empty(count, max(asked), host, pinned=pinned)
        top_logprobs(self._outputs.logits(count), self._outputs.tokens[:count], counts, self._told)

    def _draw(self, bucket: PrefillBucket, drawn: list[SamplingRow]) -> None:
        """Queue drawing the tokens of the first rows, in place of the most likely ones."""
        rows, count = self._buffers.rows(bucket), len(drawn)
        logits = self._outputs.logits(count)
        counts = counts_for(drawn, logits) if any(row.penalised for row in drawn) else None
        logits = under_rules(logits, drawn, rows.seq_lens[:count])
        token_ids = op.sample(logits, rows.sampling[:count], rows.seq_lens[:count], counts)
        self._outputs.tokens[:count].copy_(token_ids, non_blocking=True)


def _cut(part: ScheduledSequence, most: int) -> Iterator[ScheduledSequence]:
    """A chunk as chunks of so many tokens at most."""
    end = part.start + part.num_tokens
    for start in range(part.start, end, most):
        num_tokens = min(most, end - start)
        yield ScheduledSequence(part.sequence, start, num_tokens, part.samples and start + num_tokens == end)
