"""The runner on a GPU: captured steps run the decodes and prefills that they can, both kinds queued before
either is waited for; an eager runner runs everything else.

Knows neither graphs nor buffers. What held a step up, a piece of a missing step or the want of one, the log says at
its level for debugging: `bench engine --only stutter` reads it there.
"""

import logging
import time
from collections.abc import Iterator
from typing import TypeVar

import torch

from pagedchat.engine.output import ModelRunner, ModelRunnerOutput, ScheduledSequence, SchedulerOutput
from pagedchat.engine.sequence import Sequence, TokenLogprobs
from pagedchat.ops.ranks.company import Agree, nobody_else
from pagedchat.runtime.graphs.decode.ahead import RunningStep
from pagedchat.runtime.graphs.decode.decode_steps import BegunDecodes, DecodeSteps
from pagedchat.runtime.graphs.in_pieces import InPieces
from pagedchat.runtime.graphs.prefill.prefill_steps import BegunPrefill, PrefillSteps
from pagedchat.runtime.graphs.workshop import Waiting, Workshop

log = logging.getLogger(__name__)

_T = TypeVar("_T")
_Output = tuple[list[ScheduledSequence], ModelRunnerOutput]
"""A part of a batch, with all of its decodes or all of its chunks, and what came back for it."""


class CapturedRunner:
    """The engine's `ModelRunner` over another one and captured steps, all of them over the same cache.

    Args:
        eager: runs everything else.
        decodes: runs single tokens, if it can.
        prefills: runs chunks of prompts, if it can; None: `eager` runs them all.
        workshop: makes what these lack; None where they capture at first use.
    """

    def __init__(
        self,
        eager: ModelRunner,
        decodes: DecodeSteps,
        prefills: PrefillSteps | None = None,
        workshop: Workshop | None = None,
    ) -> None:
        self.eager = eager
        self.decodes = decodes
        self.prefills = prefills
        self.chooses_beams = decodes.chooses_beams
        """See `engine.output.DecodeRun.searches`."""
        self._clock = time.perf_counter if workshop is None else workshop.clock
        self._in_pieces = None if workshop is None else InPieces(decodes, prefills, self._clock)
        self._workshop = workshop
        self._wanted = [] if workshop is None else workshop.wanted

    def execute(self, batch: SchedulerOutput) -> ModelRunnerOutput:
        """See `engine.output.ModelRunner`.

        No sequence of a step reads what another writes in it, so that parts may run one after the other. Only what
        touches tensors enters torch's inference mode: a run begins no operation of torch, as a rule.
        """
        try:
            if any(self._wanted):
                self._make_before(batch)
            return self._execute_mixed(batch) if batch.run is None else self._execute_run(batch)
        except BaseException:
            self.decodes.forget_ahead()
            raise

    def verify(self, batch: SchedulerOutput) -> ModelRunnerOutput | None:
        """See `engine.output.DraftVerifier`."""
        if any(self._wanted):
            self._make_before(batch)
        self.decodes.forget_ahead()  # what was begun lacks the draft
        begun = self.decodes.verifies.begin(batch)
        if begun is None:
            return None
        if batch.meanwhile is not None:
            batch.meanwhile()
        return self.decodes.verifies.finish(begun)

    def most_rows(self, sequences: list[Sequence], longest: int, wanted: int) -> int:
        """See `engine.output.DraftVerifier`."""
        return self.decodes.verifies.most_rows(sequences, longest, wanted)

    def check(self) -> None:
        """See `engine.output.ModelRunner`."""
        self.eager.check()

    def make_wanted(self) -> bool:
        """Make a piece of the steps that batches lacked, while nobody waits.

        Returns:
            Whether there was something to be done.
        """
        return bool(self._make_due("nobody"))

    @torch.inference_mode()
    def make_all_wanted(self) -> None:
        """Make all steps that batches lacked so far, while no step is under way, whatever it takes."""
        if self._workshop is not None and any(self._wanted):
            self.decodes.forget_ahead()
            self._workshop.make_all()

    def prepare_prefill(self, agree: Agree = nobody_else) -> int | None:
        """Capture one more graph for prompts, while no step is under way; a matter of some ten milliseconds.

        Args:
            agree: of all ranks, which capture the same.

        Returns:
            How many were captured, 0 while kernels are compiled; None where there is nothing more.
        """
        return None if self.prefills is None else self.prefills.prepare_one_more(agree)

    def _make_before(self, batch: SchedulerOutput) -> None:
        """What is due of what is wanted, before a step."""
        between_tokens = batch.run is not None or any(map(_is_decode, batch.scheduled))
        for piece in self._make_due("next token" if between_tokens else "first token"):
            log.debug("Step %d: %s.", batch.step, piece)

    @torch.inference_mode()
    def _make_due(self, waiting: Waiting) -> list[str]:
        workshop = self._workshop
        if workshop is None or not workshop.is_due(waiting):
            return []
        self.decodes.forget_ahead()  # what is made takes the memory that it reads
        return workshop.work(waiting)

    def _run_otherwise(self, batch: SchedulerOutput) -> ModelRunnerOutput:
        """What no captured step serves by now: in pieces by those that are there, or without a graph."""
        outputs: list[_Output] = []
        left: list[ScheduledSequence] = []
        for are_decodes in (True, False):
            parts = [part for part in batch.scheduled if _is_decode(part) == are_decodes]
            output = self._in_pieces and parts and self._in_pieces.run(batch, parts, are_decodes=are_decodes)
            if output:
                outputs.append((parts, output))
            else:
                left += parts
        if not outputs:
            return self._run_eagerly(batch)
        if left:
            outputs.append((left, self._run_eagerly(_part_of(batch, left))))
        return _merge(batch, outputs)

    def _run_eagerly(self, batch: SchedulerOutput) -> ModelRunnerOutput:
        began = self._clock()
        output = self.eager.execute(batch)
        took, count = self._clock() - began, len(batch.scheduled)
        if self._in_pieces is not None:
            self._in_pieces.note_eager(took)
        log.debug(
            "Step %d: %d tokens of %d without a graph: %.1f ms.", batch.step, batch.num_tokens, count, 1e3 * took
        )
        return output

    def _execute_run(self, batch: SchedulerOutput) -> ModelRunnerOutput:
        decoding = self.decodes.begin(batch)  # there is nothing but decodes
        if decoding is None:
            return self._run_otherwise(batch)
        if batch.meanwhile is not None:
            batch.meanwhile()
        return self.decodes.finish(decoding)

    @torch.inference_mode()
    def _execute_mixed(self, batch: SchedulerOutput) -> ModelRunnerOutput:
        single = [part for part in batch.scheduled if _is_decode(part)]
        chunks = [part for part in batch.scheduled if not _is_decode(part)]
        decoding = self._begin_decodes(batch, single, chunks)
        prefilling = self._begin_prefills(batch, chunks, first=decoding is None)
        if decoding is None and prefilling is None:
            return self._run_otherwise(batch)
        follow = not batch.searches and (decoding is not None or not single)
        replies = self._begin_replies(prefilling, decoding) if prefilling is not None and follow else None
        outputs: list[_Output] = []
        left = ([] if decoding else single) + ([] if prefilling else chunks)
        if left:  # while the device is busy with the rest
            outputs.append((left, self._run_otherwise(_part_of(batch, left))))
        if batch.meanwhile is not None:
            batch.meanwhile()
        if decoding is not None:
            outputs.append((single, self.decodes.finish(decoding)))
        if self.prefills is not None and prefilling is not None:
            outputs.append((chunks, self.prefills.finish(prefilling)))
            if replies is not None:
                replies.token_ids += [token for tokens in outputs[-1][1].token_ids for token in tokens]
        return outputs[0][1] if len(outputs) == 1 else _merge(batch, outputs)

    def _begin_decodes(
        self, batch: SchedulerOutput, single: list[ScheduledSequence], chunks: list[ScheduledSequence]
    ) -> BegunDecodes | None:
        if not single:
            return None
        # Whoever comes to the end of the prompt joins the decodes: what was begun ahead would lack its row.
        goes_on = not batch.searches and not any(part.samples for part in chunks)
        return self.decodes.begin(_part_of(batch, single, first=True), goes_on=goes_on)

    def _begin_prefills(
        self, batch: SchedulerOutput, chunks: list[ScheduledSequence], *, first: bool
    ) -> BegunPrefill | None:
        if not chunks or self.prefills is None:
            return None
        return self.prefills.begin(_part_of(batch, chunks, first=first))

    def _begin_replies(self, prompts: BegunPrefill, beside: BegunDecodes | None) -> RunningStep | None:
        """Have the first decodes follow the prompts at once, with those that decode beside them: the device has the
        tokens."""
        if self.prefills is None or not prompts.sampled:
            return None
        sequences = [part.sequence for part in prompts.sampled]
        return self.decodes.begin_replies(sequences, self.prefills.chosen_by(prompts), beside)


def _is_decode(part: ScheduledSequence) -> bool:
    return part.samples and (part.num_tokens == 1 or len(part.draft) > 0)


def _part_of(batch: SchedulerOutput, parts: list[ScheduledSequence], *, first: bool = False) -> SchedulerOutput:
    """Block moves come with the first part: they precede all."""
    if len(parts) == len(batch.scheduled):
        return batch
    num_tokens = sum([part.num_tokens for part in parts])
    return SchedulerOutput(batch.step, parts, batch.block_ops if first else [], num_tokens)


def _merge(batch: SchedulerOutput, outputs: list[_Output]) -> ModelRunnerOutput:
    """The outputs of the parts as one."""
    each = [output for _, output in outputs]
    return ModelRunnerOutput(
        _in_order(batch, [(parts, output.token_ids) for parts, output in outputs]),
        sum([output.copy_seconds for output in each]),
        sum([output.forward_seconds for output in each]),
        sum([output.sample_seconds for output in each]),
        sum([output.launch_seconds for output in each]),
        sum([output.attention_seconds for output in each]),
        logprobs=_told_in_order(batch, outputs, "logprobs"),
        prompt_logprobs=_told_in_order(batch, outputs, "prompt_logprobs"),
    )


def _told_in_order(batch: SchedulerOutput, outputs: list[_Output], name: str) -> list[list[TokenLogprobs]] | None:
    """What the parts tell of tokens; None if none of them does."""
    told = [(parts, getattr(output, name)) for parts, output in outputs]
    if all(each is None for _, each in told):
        return None
    return _in_order(batch, [(parts, each or [[] for _ in parts]) for parts, each in told])


def _in_order(batch: SchedulerOutput, outputs: list[tuple[list[ScheduledSequence], list[_T]]]) -> list[_T]:
    """What came back for parts, in the order of the batch."""
    of_kind: dict[bool, Iterator[_T]] = {}
    for parts, each in outputs:
        remaining = iter(each)
        of_kind.update({_is_decode(part): remaining for part in parts})
    return [next(of_kind[_is_decode(part)]) for part in batch.scheduled]
