"""What crosses between the engine and the model runner in one step."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Literal, Protocol, runtime_checkable

import msgspec

from pagedchat.engine.sequence import Sequence, TokenLogprobs, ToldLater
from pagedchat.structured.params import StructuredOutputsParams


class BlockOp(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """One block to be moved before the forward pass: all layers, K and V."""

    kind: Literal["copy", "swap_out", "swap_in"]
    """copy: device -> device; swap_out: device -> host; swap_in: host -> device."""
    src: int
    dst: int


class ScheduledSequence(msgspec.Struct):
    """One sequence's part in a step: compute KV for `token_ids[start : start + num_tokens]`."""

    sequence: Sequence
    start: int
    """Tokens before this one are in the cache."""
    num_tokens: int
    samples: bool
    """Whether these tokens reach the end of the sequence, so that a next token is sampled."""
    draft: list[int] | tuple[()] = ()
    """Tokens that may come next, behind the last one of the sequence, which has none of them: `num_tokens` counts
    them. Runners see none (`speculation.rows`)."""
    is_row: bool = False
    """Whether other parts of the batch write to the same block table, at other positions, and may be read."""


Ranked = tuple[float, int, int]
"""A continuation of a beam: the sum of its log-probabilities, the beam's place among all, the best first, and its
next token."""


class RunningSearch(Protocol):
    """A beam search whose beams are all in a run, for a runner that chooses among them: the best `num_choices`
    continuations are ranked, and of those that do not end the best `width` go on. The best one of each beam goes on
    in its place, the others take the places of those that have none: the next best that of the best of these."""

    @property
    def width(self) -> int:
        """Beams."""
        ...

    @property
    def num_choices(self) -> int:
        """Continuations that are ranked."""
        ...

    @property
    def stop_token_ids(self) -> frozenset[int]:
        """Tokens that end a beam; not as many as are ranked."""
        ...

    def standing(self) -> list[tuple[Sequence, float]]:
        """The beams and the sums of their log-probabilities, the best first."""
        ...


@dataclass(slots=True, eq=False)
class DecodeRun:
    """Batches that follow one another and have the same sequences in the same order, one token each.

    From one to the next every sequence is longer by the token that came back for it, and block tables have changed
    in nothing but what `grown` says. It is the same object as long as that is so. Beams go on as was chosen for
    them (`ModelRunnerOutput.beams`): one that takes another's place has the full blocks of the one that it
    continues, the other blocks stay those of the place.
    """

    room: int = 0
    """Tokens that every sequence may write, this batch's included, before one of them needs another block: maybe
    more, never fewer."""
    grown: list[int] = field(default_factory=list)
    """Whose block tables have got blocks at their ends since the batch before: indices in the batch."""
    searches: list[RunningSearch] = field(default_factory=list)
    """Those with beams in it, if the runner is to choose; the same ones for all of the run."""


class SchedulerOutput(msgspec.Struct):
    """The batch of one step; never empty.

    The block table of every scheduled sequence covers `start + num_tokens` tokens, and the blocks written to are
    its own. `block_ops` must be carried out in order (a block written by one may be read by a later one), before
    the forward pass, and are taken off the list once they are.
    """

    step: int
    scheduled: list[ScheduledSequence]
    block_ops: list[BlockOp]
    num_tokens: int
    """Sum of `num_tokens`."""
    run: DecodeRun | None = None
    """The run that this batch belongs to, if the one before was of it already."""
    meanwhile: Callable[[], None] | None = None
    """What the engine has to do and may do while a device computes, if anything: for a runner to call when all work
    of the batch is queued, before it waits for that. One that has no such moment need not call it."""
    searches: bool = False
    """Whether beams may be in the batch: the tokens with which they go on are not those that are sampled."""


class ModelRunnerOutput(msgspec.Struct):
    """What came back from the model."""

    token_ids: list[list[int]]
    """For each scheduled sequence, in order: the sampled tokens; empty where `samples` is false."""
    copy_seconds: float = 0.0
    forward_seconds: float = 0.0
    """0 where it is not measured: then it is what the other phases leave."""
    sample_seconds: float = 0.0
    launch_seconds: float = 0.0
    attention_seconds: float = 0.0
    """Of the forward pass; 0 where it is not measured."""
    logprobs: list[list[TokenLogprobs]] | None = None
    """Like `token_ids`, an entry for each sampled token of sequences that want it; empty for others. None: nobody
    does."""
    prompt_logprobs: list[list[TokenLogprobs]] | None = None
    """For each scheduled sequence that wants it, an entry for the prompt token after each that was computed, from
    that after `start` on. None: nobody does."""
    rank_seconds: tuple[float, ...] = ()
    """See `events.StepReport`."""
    beams: list[list[Ranked]] | None = None
    """For each of the run's searches what the runner has chosen from: continuations, the best first. None: it
    leaves the choice to the engine, by `logprobs`."""
    told_later: ToldLater | None = None
    """In place of `logprobs` where all sequences of a run want as much, and there are no beams."""
    beams_moved: bool = False
    """Whether those that take another's place have what the one that they continue has in its last block."""


class Grammars(Protocol):
    """Who knows what forms mean for the tokens of a model; `runtime.structured` has the real one."""

    def compile(self, wanted: StructuredOutputsParams) -> object:
        """What the runner holds a reply to; for the engine a thing to hand on.

        Raises:
            InvalidValueError, RequestError: no reply can be held to it.
        """
        ...


class ModelRunner(Protocol):
    """What the engine asks of the model side; `runtime` has the real ones, tests have fakes.

    One whose attribute `chooses_beams` is true is told of searches (`DecodeRun.searches`), and may choose.
    """

    def execute(self, batch: SchedulerOutput) -> ModelRunnerOutput:
        """Carry out the block operations, run the model on the batch, sample.

        What it raises is put down to one of the sequences where the others do not raise it, unless `check` raises
        too. Moves that are still on the list then count as not carried out.
        """
        ...

    def check(self) -> None:
        """After `execute` raised: whether another batch may do better.

        Raises:
            Exception: no batch will; the device is lost, say.
        """
        ...


@runtime_checkable
class DraftVerifier(Protocol):
    """A runner that takes drafts as they are, without a sequence for each token, and at some sizes only."""

    def most_rows(self, sequences: list[Sequence], longest: int, wanted: int) -> int:
        """Tokens that a batch of these may have now, drafted ones included; 0: it is to have no drafts.

        Args:
            sequences: that decode.
            longest: tokens of the longest of them, with a draft.
            wanted: tokens, at most.
        """
        ...

    def verify(self, batch: SchedulerOutput) -> ModelRunnerOutput | None:
        """Carry out a batch with drafts, as `execute` does one without.

        Returns:
            A token for every one that was computed; None, with nothing done, for a batch that has to go as rows.
        """
        ...
