"""Drives a model runner by hand: block tables from a shuffled list, chunks of any size, no engine."""

import random
from collections.abc import Callable

from pagedchat.engine.output import BlockOp, ModelRunner, ScheduledSequence, SchedulerOutput
from pagedchat.engine.sampling_params import SamplingParams
from pagedchat.engine.sequence import Sequence
from pagedchat.runtime.step.model_runner import TorchModelRunner

GREEDY = SamplingParams(temperature=0)


def eager_of(runner: ModelRunner) -> TorchModelRunner:
    """The runner itself, or the one beneath captured steps."""
    eager = getattr(runner, "eager", runner)
    assert isinstance(eager, TorchModelRunner)
    return eager


class Driver:
    """A scheduler of the simplest kind: every unfinished sequence in every step, within a token budget."""

    def __init__(self, runner: ModelRunner, chunk: int = 1000, params: SamplingParams = GREEDY) -> None:
        self.runner = runner
        self.chunk = chunk
        self.params = params
        backend = eager_of(runner).backend
        self.block_size = backend.shape.block_size
        self.free = list(range(backend.num_blocks))
        random.Random(5).shuffle(self.free)
        self.sequences: list[Sequence] = []
        self.pending_ops: list[BlockOp] = []

    def add(self, prompt: list[int], seed: int = 0) -> Sequence:
        seq = Sequence(len(self.sequences))
        seq.token_ids, seq.num_prompt_tokens, seq.seed = list(prompt), len(prompt), seed
        seq.sampling_params = self.params
        self.sequences.append(seq)
        return seq

    def move(self, seq: Sequence) -> None:
        """Put every block of the sequence somewhere else, by copies."""
        for idx, src in enumerate(seq.block_table):
            dst = self.free.pop(0)
            self.pending_ops.append(BlockOp("copy", src, dst))
            self.free.append(src)
            seq.block_table[idx] = dst

    def swap_out_and_in(self, seq: Sequence) -> None:
        """Send every block to host memory and bring it back to another place."""
        host = list(range(len(seq.block_table)))
        self.pending_ops += [BlockOp("swap_out", src, dst) for src, dst in zip(seq.block_table, host, strict=True)]
        self.free += seq.block_table
        seq.block_table = [self.free.pop(0) for _ in host]
        self.pending_ops += [BlockOp("swap_in", src, dst) for src, dst in zip(host, seq.block_table, strict=True)]

    def step(self, num_tokens: int) -> bool:
        """One step; false when every sequence has `num_tokens` new tokens."""
        budget, scheduled = self.chunk, []
        for seq in self.sequences:
            count = min(budget, seq.num_uncomputed)
            if len(seq.output_token_ids) < num_tokens and count > 0:
                budget -= count
                self._cover(seq, seq.num_computed + count)
                samples = seq.num_computed + count == len(seq)
                scheduled.append(ScheduledSequence(seq, seq.num_computed, count, samples))
        if not scheduled:
            return False
        ops, self.pending_ops = self.pending_ops, []
        output = self.runner.execute(SchedulerOutput(1, scheduled, ops, self.chunk - budget))
        for part, token_ids in zip(scheduled, output.token_ids, strict=True):
            assert len(token_ids) == part.samples
            part.sequence.num_computed += part.num_tokens
            part.sequence.token_ids += token_ids
        return True

    def run(self, num_tokens: int, between: Callable[[], None] = lambda: None) -> list[list[int]]:
        while self.step(num_tokens):
            between()
        return [seq.output_token_ids for seq in self.sequences]

    def _cover(self, seq: Sequence, length: int) -> None:
        while len(seq.block_table) * self.block_size < length:
            seq.block_table.append(self.free.pop(0))
