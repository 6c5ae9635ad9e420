"""Batches in which every sequence computes one token, run as captured steps; everything else is left to others.

The host's part of such a step is filling one piece of pinned memory, one copy, one launch, and reading the tokens
from pinned memory when they are there. The step after is begun at once (`ahead`), and the host's part of the engine
runs beside it.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

from pagedchat.engine.output import DecodeRun, ModelRunnerOutput, ScheduledSequence, SchedulerOutput
from pagedchat.engine.sequence import Sequence
from pagedchat.jit.build_ahead import BuildAhead
from pagedchat.models.decoder import Decoder
from pagedchat.runtime.attention.cuda_backend import CudaAttention
from pagedchat.runtime.graphs.decode.ahead import RunningStep
from pagedchat.runtime.graphs.decode.beam_store import BeamStore
from pagedchat.runtime.graphs.decode.beams import BeamSteps
from pagedchat.runtime.graphs.decode.buckets import Bucket, rows_for
from pagedchat.runtime.graphs.decode.done import Done
from pagedchat.runtime.graphs.decode.new_steps import NewSteps
from pagedchat.runtime.graphs.decode.ruled import RuledSteps
from pagedchat.runtime.graphs.decode.state_buffers import HISTORY_LEN, StateBuffers
from pagedchat.runtime.graphs.decode.store import Serving, StepStore
from pagedchat.runtime.graphs.decode.told import ToldSteps, keeps_logits
from pagedchat.runtime.graphs.decode.uploads import Uploads
from pagedchat.runtime.graphs.decode.verify_steps import VerifySteps
from pagedchat.runtime.graphs.foreign_model import StepModel
from pagedchat.runtime.graphs.shelf import Shelf
from pagedchat.runtime.step.block_moves import apply_block_ops
from pagedchat.runtime.step.sampler import Choice
from pagedchat.runtime.step.sizes import StepSizes


@dataclass(frozen=True, slots=True)
class BegunDecodes:
    """A batch that is under way."""

    running: RunningStep
    seconds: float
    """What beginning it took."""
    reads_later: bool = False
    """Whether what is told of its tokens may be read when somebody asks for it: no beam goes on by it."""


class DecodeSteps:
    """Runs decode batches.

    Args:
        model: whose steps.
        backend: its cache.
        sizes: of a batch, at most.
        at_first_use: see `Shelf`.
    """

    def __init__(
        self, model: StepModel, backend: CudaAttention, sizes: StepSizes, *, at_first_use: bool = True
    ) -> None:
        self._backend = backend
        self.dtype = backend.shape.dtype
        """Of what steps compute."""
        self._max_num_seqs = sizes.num_seqs
        largest, vocab_size = Bucket(sizes.num_seqs, sizes.model_len), model.vocab_size
        self._buffers = StateBuffers(largest, backend.shape.block_size, backend.device, vocab_size)
        self.store = StepStore(model, backend, self._buffers, sizes.model_len, at_first_use=at_first_use)
        """What is captured."""
        self._new = NewSteps(self.store, self._buffers, backend, sizes)
        self.verifies = VerifySteps(self.store, self._buffers, backend, sizes)
        """Runs batches with drafts, in the same memory."""
        self._uploads = Uploads(self._buffers)
        self._ruled = RuledSteps(self._buffers, backend.device)
        self._told = ToldSteps(self._buffers, sizes.num_seqs, backend.device)
        beams = BeamStore(self._buffers, sizes.num_seqs, backend, at_first_use=at_first_use)
        self._beams = BeamSteps(beams, backend)
        self.chooses_beams = self._beams.serves
        """Whether it does so for searches whose beams are all in a run."""
        self._has_ranks = isinstance(model, Decoder) and model.ranks.size > 1
        self._ahead: RunningStep | None = None
        self._run: DecodeRun | None = None
        """That of the batch begun last."""
        on_gpu = backend.device.type == "cuda"
        # One more than numbers that a step may have behind another: see `NewSteps.following`.
        self._events = [Done(backend.device) for _ in range(HISTORY_LEN + 1 if on_gpu else 0)]
        self.num_replays = self.num_ahead = 0
        """Steps run, and those of them that were begun ahead and asked for."""
        self.last_logits = torch.empty(0)
        """`[num_rows, vocab_size]` of the step begun last, padding included; the next one overwrites them.
        `[num_rows, 0]` of a step that has chosen the most likely tokens without them."""

    @property
    def shelves(self) -> list[Shelf[Any]]:
        """All that it has captured, by kinds."""
        return [self.store, self._beams.store]

    def build_ahead(
        self, num_seqs: int, context_len: int, reads_rows: bool = False, *, quietly: bool = False
    ) -> BuildAhead | None:
        """Begin to build, in the background, the kernels that `prepare` takes; None where it takes none.

        Not to be called during a step. `quietly` as in `BuildAhead`.
        """
        bucket = self._new.bucket(num_seqs, context_len, reads_rows=reads_rows)
        self._ahead = None
        return None if bucket is None else self.store.build_ahead(bucket, quietly=quietly)

    @torch.inference_mode()
    def prepare(self, num_seqs: int, context_len: int, reads_rows: bool = False) -> bool:
        """Capture what serves such batches, whatever tokens they choose, before there are any; with `reads_rows`
        those of as many rows that have drafts.

        Returns:
            Whether that went well.
        """
        bucket = self._new.bucket(num_seqs, context_len, reads_rows=reads_rows)
        self._ahead = None
        return bucket is not None and all(
            self.store.capture((bucket, choice)) for choice in self.store.choices(bucket)
        )

    def choices(self, num_seqs: int, context_len: int) -> tuple[Choice, ...]:
        """For which such batches have steps that differ; none where they are too many for any."""
        bucket = self._new.bucket(num_seqs, context_len)
        return () if bucket is None else self.store.choices(bucket)

    def want(self, num_seqs: int, context_len: int) -> None:
        """Have what serves such batches made beside whatever runs."""
        bucket = self._new.bucket(num_seqs, context_len)
        if bucket is not None:
            for choice in self.store.choices(bucket):
                self.store.note((bucket, choice))

    def distrust(self, begun: BegunDecodes) -> str:
        """Take the next slower kind of step, from now on, wherever that of a finished batch would be taken.

        Returns:
            The name of what is left out; empty where none is slower.
        """
        self._ahead = None
        self._beams.store.forget()
        return self.store.distrust(begun.running.bucket, begun.running.choice)

    def pieces(self, parts: list[ScheduledSequence]) -> list[list[ScheduledSequence]]:
        """Parts of a batch cut so that captured steps serve each piece by now; empty where that cannot be."""
        if any(part.is_row or not _is_single(part) for part in parts):
            return []
        starts = [part.start for part in parts]
        if self._new.find([part.sequence for part in parts], starts, self.store.there) is not None:
            return [parts]
        half = len(parts) // 2
        first = self.pieces(parts[:half]) if half else []
        rest = self.pieces(parts[half:]) if first else []
        return [*first, *rest] if rest else []

    def begin(self, batch: SchedulerOutput, *, goes_on: bool = True, by_now: bool = False) -> BegunDecodes | None:
        """Queue a batch on the device; None, with nothing done, for one of another kind.

        Args:
            batch: what the engine asks for.
            goes_on: whether the next batch will have the same sequences, as far as can be told; then the step after
                is begun at once.
            by_now: nothing is captured for it, and nothing noted that would be of use.
        """
        started = time.perf_counter()
        ahead, self._ahead = self._ahead, None
        running = None if ahead is None or batch.block_ops else self._asked_for(ahead, batch)
        self._run = batch.run
        some_ended = running is not ahead
        if running is not None:
            self.num_ahead += 1
            if running.waits:
                self._choose_at_last(running)
        else:
            running, some_ended = self._begin_now(batch, self.store.there if by_now else self.store.get), False
            if running is None:
                return None
        if (batch.searches and running.beams is None) or (self._has_ranks and _has_form(running)):
            goes_on = False  # the engine chooses; or rank 0, which alone knows forms
        if goes_on and not running.bucket.reads_rows:
            has_room = batch.run is not None and batch.run.room > 1
            begun = self._fits_no_smaller(running) and self._begin_next(running, some_ended, has_room)
            if not begun and running.is_plain:
                self._begin_elsewhere(running, has_room)
        reads_later = batch.run is not None and not batch.searches
        return BegunDecodes(running, time.perf_counter() - started, reads_later)

    def forget_ahead(self) -> None:
        """No step that was begun for the next batch is of use: the one before was not finished, or the memory of
        steps is wanted for something else."""
        self._ahead = self._run = None

    @torch.inference_mode()
    def begin_replies(
        self, sequences: list[Sequence], chosen: torch.Tensor, beside: BegunDecodes | None = None
    ) -> RunningStep | None:
        """Queue the first decodes of sequences whose prompts are on the device, as far as that can be told by now.

        Not where there is no step for them by now: somebody waits for the first tokens.

        Args:
            sequences: all whose prompts end.
            chosen: `[len(sequences)]`, int32, in pinned memory: has their first tokens once the prompts are done.
            beside: decodes begun with those prompts; they go on in the same step.

        Returns:
            What was begun, if anything: it is to be told the tokens, behind those of `beside` in `token_ids`, when
            the host knows them.
        """
        before = None if beside is None else beside.running
        going = [] if before is None else before.going_on(False)
        if going is None or (before is not None and not before.is_plain):
            return None
        running = self._new.following(before, going, sequences)
        if running is None or not running.may_begin():
            return None
        self._tell_of(running)
        if before is not None and going:
            self._uploads.tokens_of(before, [before.rows[i] for i in going], running)
        self._uploads.first_tokens(running, range(len(going), len(running.rows)), chosen)
        self._replay(running)
        self._ahead, self._run = running, None
        return running

    def finish(self, begun: BegunDecodes) -> ModelRunnerOutput:
        """Wait for the tokens of the batch begun last. What counts as forward is the wait."""
        launched = time.perf_counter()
        running = begun.running
        if running.done is not None:
            running.done.synchronize()
        waited = time.perf_counter()
        chosen = self._buffers.tokens(running.bucket, running.number)
        chosen = chosen[: len(running.rows)] if running.in_order else [chosen[row] for row in running.rows]
        if self._ahead is not None:
            taken = self._ahead.taken
            self._ahead.token_ids = chosen if taken is None else [chosen[i] for i in taken]
            if self._ahead.waits:
                self._choose_early(self._ahead)
        seconds = (0.0, waited - launched, time.perf_counter() - waited, begun.seconds)
        tokens = [[token_id] for token_id in chosen]
        output = ModelRunnerOutput(tokens, *seconds)
        if running.asked is not None:
            if begun.reads_later:
                output.told_later = self._told.read_later(running)
            if output.told_later is None:
                output.logprobs = self._told.read(running)
        if running.beams is not None:
            output.beams, output.beams_moved = self._beams.read(running, running.beams), running.beams_moved
        return output

    def _asked_for(self, ahead: RunningStep, batch: SchedulerOutput) -> RunningStep | None:
        """The step begun ahead, as far as the batch asks for it; None if it is another one."""
        parts = batch.scheduled
        if batch.run is not None and batch.run is self._run and parts[0].start == ahead.starts[0]:
            ahead.grown = batch.run.grown
            return ahead
        if ahead.beams is not None:
            return None
        return ahead.for_batch(parts) if batch.num_tokens == len(parts) else None

    @torch.inference_mode()
    def _begin_now(
        self, batch: SchedulerOutput, find: Callable[[Bucket, Choice], Serving | None]
    ) -> RunningStep | None:
        parts = batch.scheduled
        if not all(map(_is_single, parts)):
            return None
        starts = [part.start for part in parts]
        reads_rows = any(part.is_row for part in parts)
        running = self._new.find([part.sequence for part in parts], starts, find, reads_rows=reads_rows)
        if running is None:
            return None
        apply_block_ops(self._backend, batch.block_ops)
        self._backend.wait_for_swaps()
        if batch.run is not None and batch.run.searches and keeps_logits(running.step):
            self._beams.prepare(running, batch.run.searches)
        self._tell_of(running)
        self._replay(running)
        return running

    def _tell_of(self, running: RunningStep) -> None:
        """Tell the device of a batch that is new to it."""
        self._uploads.whole(running)
        self._ruled.prepare(running)
        num_asked = sum(params.logprobs is not None for params in running.params)
        if running.beams is None or num_asked > running.beams.num_beams:
            self._told.ask(running)

    def _replay(self, running: RunningStep) -> None:
        step = running.step
        step.replay()
        self.last_logits = step.logits
        self.num_replays += 1
        if not running.waits:
            self._choose(running)

    def _choose_at_last(self, running: RunningStep) -> None:
        """Queue choosing the tokens of a step that was begun before those before it were known."""
        if running.ruled is not None:
            running.ruled = self._ruled.follow(running, running.ruled)
        running.waits = False
        self._choose(running)

    def _choose_early(self, ahead: RunningStep) -> None:
        """Queue choosing the tokens of a step as soon as those before are known, if that will do: whatever else the
        host has to do with these, it does beside the device."""
        if ahead.ruled is None or ahead.beams is not None:  # beams go on with other tokens
            return
        if self._ruled.queue_early(ahead, ahead.ruled, ahead.step.logits):
            ahead.waits = False
            self._look_at_chosen(ahead)

    def _choose(self, running: RunningStep) -> None:
        """Queue what comes behind the graph."""
        if running.ruled is not None:
            self._ruled.queue(running, running.ruled, running.step.logits)
        self._look_at_chosen(running)

    def _look_at_chosen(self, running: RunningStep) -> None:
        """Queue what is done with the tokens of a step."""
        if running.asked is not None:
            self._told.queue(running, running.asked, running.step.logits)
        if self._events:
            running.done = self._events[running.number % len(self._events)]
            running.done.record()

    def _fits_no_smaller(self, running: RunningStep) -> bool:
        """Whether the batch has not become so small that fewer rows would do."""
        return rows_for(len(running.rows), self._max_num_seqs) == running.asked_rows

    def _begin_next(self, running: RunningStep, some_ended: bool, has_room: bool) -> bool:
        """Begin the step after in the same bucket; returns whether that can be."""
        following = running.next()
        if not following.may_begin(has_room):
            return False
        if running.beams is not None:
            if running.grown:
                self._uploads.blocks(running, following)
            running.beams_moved = True  # it begins with that
        elif some_ended:
            self._uploads.places(running, following)
        elif running.grown:
            self._uploads.tables(running, following)
        following.number = self._buffers.next_number()
        following.waits = following.ruled is not None and following.ruled.follows_tokens
        self._ahead = following
        self._replay(following)
        return True

    @torch.inference_mode()
    def _begin_elsewhere(self, running: RunningStep, has_room: bool) -> None:
        """Begin the step after in a bucket of its own, of those who go on: fewer rows do by now, or more context is
        wanted. The device, which has the tokens first, would wait while the host lays all of that out."""
        going = running.going_on(has_room)
        following = self._new.following(running, going, []) if going else None
        if following is None or not following.may_begin(True):
            return
        self._tell_of(following)
        self._uploads.tokens_of(running, [running.rows[i] for i in going or ()], following)
        self._ahead = following
        self._replay(following)


def _is_single(part: ScheduledSequence) -> bool:
    return part.num_tokens == 1 and part.samples


def _has_form(running: RunningStep) -> bool:
    """Whether a reply is held to one: all ranks but the first would choose other tokens, and begin other steps."""
    return any(params.structured_outputs is not None for params in running.params)
