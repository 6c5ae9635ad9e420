"""Small batches run while loading, so that what libraries load at first use is there when chats run.

The first product of a size, the first draw with penalties, the first decode of several chats each load kernels of
torch, cuBLAS or ours: some milliseconds that would fall between two tokens of a chat. Here they fall where nobody
waits for a token, best of all while kernels are being compiled. What the batches compute is of no interest. Knows
no graphs.
"""

import time
from collections.abc import Iterator

from pagedchat.engine.output import ModelRunner, ScheduledSequence, SchedulerOutput
from pagedchat.engine.sampling_params import SamplingParams
from pagedchat.engine.sequence import Sequence
from pagedchat.runtime.attention.backend import AttentionBackend
from pagedchat.runtime.step.sizes import StepSizes

MOST_SECONDS = 0.05
"""For which batches are run where nothing has to be waited for anyway."""
KINDS = (
    SamplingParams(temperature=0, repetition_penalty=1.1),
    SamplingParams(temperature=0.8, top_p=0.9, presence_penalty=0.5),
    SamplingParams(temperature=0),
    SamplingParams(temperature=1.0, top_k=40, min_p=0.05),
)
"""How the sequences of a batch draw their tokens, in turn."""
ROUNDS = ((1, 40), (4, 16), (2, 150), (1, 300), (8, 16), (1, 900), (3, 64), (16, 8))
"""Sequences and the tokens of each prompt: all of them at once, then a decode of each, the likely ones first."""


class FirstBatches:
    """Of one runner.

    Args:
        runner: runs them.
        backend: its cache, whose contents do not matter.
        sizes: of a step, at most.
        vocab_size: token ids are below it.
    """

    def __init__(self, runner: ModelRunner, backend: AttentionBackend, sizes: StepSizes, vocab_size: int) -> None:
        self._runner = runner
        self._block_size, self._num_blocks = backend.shape.block_size, backend.num_blocks
        self._sizes = sizes
        self._vocab_size = vocab_size
        self._left = self._batches()

    def run_one(self) -> bool:
        """Run the next batch; says whether there was one."""
        batch = next(self._left, None)
        if batch is not None:
            self._runner.execute(batch)
        return batch is not None

    def run_some(self) -> None:
        """Run what is left, for `MOST_SECONDS`."""
        until = time.perf_counter() + MOST_SECONDS
        while time.perf_counter() < until and self.run_one():
            pass

    def _batches(self) -> Iterator[SchedulerOutput]:
        for count, length in ROUNDS:
            if not self._has_room(count, length):
                continue
            sequences = [self._sequence(i, length) for i in range(count)]
            yield _batch([ScheduledSequence(sequence, 0, length, True) for sequence in sequences])
            yield _batch([ScheduledSequence(sequence, length, 1, True) for sequence in sequences])

    def _has_room(self, count: int, length: int) -> bool:
        fits_step = count <= self._sizes.num_seqs and count * length <= self._sizes.num_tokens
        return fits_step and length < self._sizes.model_len and count * self._blocks(length) <= self._num_blocks

    def _blocks(self, length: int) -> int:
        return length // self._block_size + 1

    def _sequence(self, seq_id: int, length: int) -> Sequence:
        """With a prompt and one token more, in blocks of its own."""
        sequence, num_blocks = Sequence(seq_id), self._blocks(length)
        sequence.token_ids = [(i * 7919 + seq_id) % self._vocab_size for i in range(length + 1)]
        sequence.num_prompt_tokens = length
        sequence.block_table = list(range(seq_id * num_blocks, (seq_id + 1) * num_blocks))
        sequence.sampling_params = KINDS[seq_id % len(KINDS)]
        return sequence


def _batch(parts: list[ScheduledSequence]) -> SchedulerOutput:
    return SchedulerOutput(0, parts, [], sum(part.num_tokens for part in parts))
