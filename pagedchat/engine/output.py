"""What crosses between the engine and the model runner in one step."""

from typing import Literal, Protocol

import msgspec

from pagedchat.engine.sequence import Sequence


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


class SchedulerOutput(msgspec.Struct):
    """The batch of one step; never empty.

    The block table of every scheduled sequence covers `start + num_tokens` tokens, and the blocks written to are
    its own. `block_ops` must be carried out in order (a block written by one may be read by a later one), before
    the forward pass.
    """

    step: int
    scheduled: list[ScheduledSequence]
    block_ops: list[BlockOp]
    num_tokens: int
    """Sum of `num_tokens`."""


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


class ModelRunner(Protocol):
    """What the engine asks of the model side; `runtime.model_runner` has the real one, tests have fakes."""

    def execute(self, batch: SchedulerOutput) -> ModelRunnerOutput:
        """Carry out the block operations, run the model on the batch, sample."""
        ...
