"""Batches in which every sequence computes one token, run as captured steps; everything else is left to others.

The host's part of such a step is filling one piece of pinned memory, one copy, one launch, and reading the tokens
from pinned memory when they are there. Unless tokens are chosen with penalties, which take the host, the step after
is begun at once (`ahead`), and the host's part of the engine runs beside it.
"""

import time
from dataclasses import dataclass

import torch

from pagedchat.engine.output import ModelRunnerOutput, ScheduledSequence, SchedulerOutput
from pagedchat.ops.sample_rows import pack_rows
from pagedchat.runtime.attention.cuda_backend import MIN_SHARED_TOKENS, CudaAttention
from pagedchat.runtime.attention.prefix_groups import SharingRule, plan_sharing
from pagedchat.runtime.attention.table_rows import BlockTableRows
from pagedchat.runtime.decode_graph.ahead import RunningStep, may_run_ahead
from pagedchat.runtime.decode_graph.buckets import Bucket, bucket_of
from pagedchat.runtime.decode_graph.capture import Replayable
from pagedchat.runtime.decode_graph.choice import Choice, choice_for, sampling_rows
from pagedchat.runtime.decode_graph.state_buffers import Batch, StateBuffers
from pagedchat.runtime.decode_graph.step_store import StepStore
from pagedchat.runtime.kv_cache import apply_block_ops
from pagedchat.runtime.sampler import SamplingRow, op_rows, sample

_SHARING_GAIN = 8 << 30
"""Keys and values of all layers that sharing a prefix must save reading to make up for a step that is not captured:
two milliseconds of the host, in which the memory of an H200 gives about this much."""


@dataclass(frozen=True, slots=True)
class Begun:
    """A batch that is under way."""

    running: RunningStep
    parts: list[ScheduledSequence]
    rows: list[int]
    """Which rows of the step are those parts."""
    seconds: float
    """What beginning it took."""


class DecodeSteps:
    """Runs decode batches.

    Args:
        model: a `NativeModel`.
        backend: its cache.
        max_num_seqs: sequences in a batch, at most.
        model_len: tokens of a sequence, at most.
    """

    def __init__(self, model: torch.nn.Module, backend: CudaAttention, max_num_seqs: int, model_len: int) -> None:
        self._backend = backend
        self._max_num_seqs, self._model_len = max_num_seqs, model_len
        block_size = backend.shape.block_size
        self._buffers = StateBuffers(Bucket(max_num_seqs, model_len), block_size, backend.device)
        self._store = StepStore(model, backend, self._buffers, model_len)
        self._rows = BlockTableRows()
        self._sharing = SharingRule(MIN_SHARED_TOKENS, _SHARING_GAIN // (backend.shape.block_bytes // block_size))
        self._ahead: RunningStep | None = None
        self._number = 0
        on_gpu = backend.device.type == "cuda"
        self._events = [torch.cuda.Event() for _ in range(3 if on_gpu else 0)]  # type: ignore[no-untyped-call]
        self.num_replays = self.num_ahead = 0
        """Steps run, and those of them that were begun ahead and asked for."""
        self.last_logits = torch.empty(0)
        """`[num_rows, vocab_size]` of the step begun last, padding included; the next one overwrites them."""

    @torch.inference_mode()
    def prepare(self, num_seqs: int, context_len: int) -> bool:
        """Capture what serves such batches, greedy ones and drawn ones, before there are any.

        Returns:
            Whether that went well.
        """
        bucket = bucket_of(num_seqs, context_len, self._max_num_seqs, self._model_len)
        self._ahead = None
        return bucket is not None and all(self._store.get(bucket, drawn=drawn) for drawn in (False, True))

    def begin(self, batch: SchedulerOutput, *, goes_on: bool = True) -> Begun | None:
        """Queue a batch on the device; None, with nothing done, for one of another kind.

        Args:
            batch: what the engine asks for.
            goes_on: whether the next batch will have the same sequences, as far as can be told; then the step after
                is begun at once.
        """
        started = time.perf_counter()
        parts = batch.scheduled
        running, rows = self._begun_ahead(batch)
        if running is None:
            running, rows = self._begin_now(batch), list(range(len(parts)))
        if running is None:
            return None
        if goes_on and running.choice != "host" and self._next_is_known(running.bucket, parts):
            self._begin_next(running, parts, rows)
        return Begun(running, parts, rows, time.perf_counter() - started)

    def finish(self, begun: Begun) -> ModelRunnerOutput:
        """Wait for the tokens of the batch begun last. What counts as forward is the wait."""
        launched = time.perf_counter()
        running, rows = begun.running, begun.rows
        if running.done is not None:
            running.done.synchronize()
        waited = time.perf_counter()
        if running.choice == "host":
            chosen = self._sample(begun.parts, rows)
        else:
            chosen = self._buffers.tokens(running.bucket, running.number, len(running.sequences))
            if self._ahead is not None:
                self._ahead.token_ids = chosen
            if rows != list(range(len(chosen))):
                chosen = [chosen[row] for row in rows]
        seconds = (0.0, waited - launched, time.perf_counter() - waited, begun.seconds)
        return ModelRunnerOutput([[token_id] for token_id in chosen], *seconds)

    def _begun_ahead(self, batch: SchedulerOutput) -> tuple[RunningStep | None, list[int]]:
        """The step that computes the batch already, and the rows that do; no step if none does."""
        ahead, self._ahead = self._ahead, None
        rows = None if ahead is None or batch.block_ops else ahead.rows_of(batch.scheduled)
        if rows is None:
            return None, []
        self.num_ahead += 1
        return ahead, rows

    def _begin_now(self, batch: SchedulerOutput) -> RunningStep | None:
        parts = batch.scheduled
        bucket = self._bucket(parts)
        sampling = sampling_rows(parts)
        choice = choice_for(sampling)
        step = None if bucket is None else self._store.get(bucket, drawn=choice == "drawn")
        if bucket is None or step is None:
            return None
        apply_block_ops(self._backend, batch.block_ops)
        self._backend.wait_for_swaps()
        running = self._upload(bucket, parts, sampling, choice)
        self._replay(step, running)
        return running

    def _upload(
        self, bucket: Bucket, parts: list[ScheduledSequence], sampling: list[SamplingRow], choice: Choice
    ) -> RunningStep:
        """Tell the device all about a batch."""
        sequences = [part.sequence for part in parts]
        tables = [sequence.block_table for sequence in sequences]
        self._number += 1
        running = RunningStep(
            bucket=bucket,
            number=self._number,
            done=None,
            sequences=[*sequences],
            choice=choice,
            params=[sequence.sampling_params for sequence in sequences],
            seeds=[sequence.seed for sequence in sequences],
            starts=[part.start for part in parts],
            tables=[table.copy() for table in tables],
        )
        batch = Batch(
            token_ids=[part.sequence.token_ids[part.start] for part in parts],
            positions=running.starts,
            block_tables=self._rows.gather([sequence.seq_id for sequence in sequences], tables),
            sampling=pack_rows(op_rows(sampling)) if choice == "drawn" else None,
        )
        self._buffers.upload(bucket, batch, running.number)
        return running

    def _bucket(self, parts: list[ScheduledSequence]) -> Bucket | None:
        """The bucket of a batch; None if it is not one of single tokens, or gains more from a shared prefix."""
        if not all(part.num_tokens == 1 and part.samples for part in parts):
            return None
        lens = [part.start + 1 for part in parts]
        if sum(lens) > self._sharing.min_saved and self._backend.sharing is not None:
            tables = [part.sequence.block_table for part in parts]
            if plan_sharing(tables, lens, self._backend.shape.block_size, self._sharing) is not None:
                return None
        return bucket_of(len(parts), max(lens), self._max_num_seqs, self._model_len)

    def _replay(self, step: Replayable, running: RunningStep) -> None:
        step.replay()
        self.last_logits = step.logits
        self.num_replays += 1
        if self._events:
            running.done = self._events[running.number % len(self._events)]
            running.done.record()

    def _next_is_known(self, bucket: Bucket, parts: list[ScheduledSequence]) -> bool:
        """Whether the step after can be begun: its places are known, and no smaller bucket would do."""
        smallest = bucket_of(len(parts), 1, self._max_num_seqs, self._model_len)
        return (
            smallest is not None
            and smallest.num_seqs == bucket.num_seqs
            and any(len(part.sequence.token_ids) + 1 < part.sequence.stop_length for part in parts)
            and may_run_ahead(parts, bucket.context_len)
        )

    def _begin_next(self, running: RunningStep, parts: list[ScheduledSequence], rows: list[int]) -> None:
        step = self._store.get(running.bucket, drawn=running.choice == "drawn")
        if step is None:
            return
        following = running.next(parts, rows)
        grown = following.take_new_tables()
        if grown or len(rows) < sum(start >= 0 for start in running.starts):
            for row in grown:
                self._buffers.set_table(running.bucket, row, following.tables[row])
            self._buffers.upload_places(running.bucket, following.starts)
        self._number += 1
        following.number = self._number
        self._ahead = following
        self._replay(step, following)

    def _sample(self, parts: list[ScheduledSequence], rows: list[int]) -> list[int]:
        logits = self.last_logits[: len(rows)] if rows == list(range(len(rows))) else self.last_logits[rows]
        return sample(logits, sampling_rows(parts))
