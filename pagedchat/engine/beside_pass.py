"""What the engine does about prompts while a device computes them.

Hundreds of prompts take the host some milliseconds, and a device that waits for those does nothing. Two things need
not be waited for. The blocks that the prompts of this batch fill can be made findable as soon as the batch is
queued, since whoever finds one reads it later than that. And the hashes of prompts that still wait depend on their
tokens alone.
"""

from collections.abc import Callable

from pagedchat.engine.block_manager import BlockManager
from pagedchat.engine.output import ScheduledSequence
from pagedchat.engine.queues import Queues


class BesidePass:
    """The `meanwhile` of batches: called once a batch is queued, by a runner that has the time for it.

    Args:
        blocks: makes blocks findable.
        queues: who waits.
        clock: seconds.
    """

    def __init__(self, blocks: BlockManager, queues: Queues, clock: Callable[[], float]) -> None:
        self._blocks = blocks
        self._queues = queues
        self._clock = clock
        self._chunks: list[ScheduledSequence] = []
        self.seconds = 0.0
        """What the present batch's runner has spent on it."""

    def begin(self, chunks: list[ScheduledSequence]) -> None:
        """These parts of the next batch compute more than one token each."""
        self._chunks = chunks
        self.seconds = 0.0

    def __call__(self) -> None:
        """All of it, and note how long it takes."""
        if self._chunks:
            started = self._clock()
            self.finish()
            self.seconds = self._clock() - started

    def finish(self) -> None:
        """Make the blocks of the batch findable, and hash what the next one will look up, unless that is done."""
        chunks, self._chunks = self._chunks, []
        for part in chunks:
            self._blocks.cache_full_blocks(part.sequence, part.start + part.num_tokens)
        self._hash_waiting(sum([part.num_tokens for part in chunks]))

    def _hash_waiting(self, num_tokens: int) -> None:
        """Of the next prompts about as many tokens as this batch has: a device that is busy for longer has more."""
        for seq in self._queues.waiting:
            if num_tokens <= 0:
                return
            self._blocks.hash_tokens(seq)
            num_tokens -= seq.num_uncomputed
