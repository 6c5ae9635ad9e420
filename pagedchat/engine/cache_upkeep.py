"""The prefix cache's upkeep, spread so that no device waits for it.

*Prompts.* Hundreds of them take the host some milliseconds, and some things about them can be done while a device
computes them. The blocks that the prompts of this batch fill can be made findable as soon as the batch is queued,
since whoever finds one reads it later than that. And the hashes of prompts that still wait depend on their tokens
alone, as does where drafts are looked up in them.

*Decodes.* Many sequences that began together fill a block in the same step. Hashing all of those at once would make
that step several times as long as those around it. So a few of them become findable in each step.

*Drafts.* Tokens that were drafted and accepted are told with the batch, and what is told of blocks comes before
that. So blocks with such tokens become findable after the step's report.
"""

from collections import deque
from collections.abc import Callable

from pagedchat.engine.block_manager import BlockManager
from pagedchat.engine.output import ScheduledSequence
from pagedchat.engine.queues import Queues
from pagedchat.engine.sequence import Sequence
from pagedchat.engine.speculation.drafts import Drafts

PER_STEP = 4
"""Sequences of which a decode filled a block that become findable in one step; more where many wait."""


class CacheUpkeep:
    """Makes blocks findable and hashes ahead; it is the `meanwhile` of batches.

    Args:
        blocks: makes blocks findable.
        queues: who waits.
        clock: seconds.
        drafts: look them up.
    """

    def __init__(self, blocks: BlockManager, queues: Queues, clock: Callable[[], float], drafts: Drafts) -> None:
        self._drafts = drafts
        self._blocks = blocks
        self._queues = queues
        self._clock = clock
        self._steps = max(1, 3 * blocks.block_size // 4)
        """In about as many steps all of many become findable: before they fill their next blocks."""
        self._chunks: list[ScheduledSequence] = []
        self.filled: deque[Sequence] = deque()
        """With a full block that is not findable yet, the oldest first."""
        self._untold: list[tuple[Sequence, int]] = []
        """Whose newest computed tokens the next report tells, and how many were told by the one before."""
        self.seconds = 0.0
        """What the present batch's runner has spent on it."""

    # --- prompts, while the forward pass runs -------------------------------------------------------

    def begin(self, chunks: list[ScheduledSequence]) -> None:
        """These parts of the next batch compute more than one token each."""
        self._chunks = chunks
        self.seconds = 0.0

    def __call__(self) -> None:
        """For a runner that has the time for it, once the batch is queued: all of it, noting how long it takes."""
        if self._chunks or self._drafts.is_late:
            started = self._clock()
            self.finish()
            self.seconds = self._clock() - started

    def finish(self) -> None:
        """Make the blocks of the batch findable, hash what the next one will look up, and index what its drafts are
        looked up in, unless that is done."""
        chunks = self._chunks
        if chunks:
            self._chunks = []
            for part in chunks:
                self._blocks.cache_full_blocks(part.sequence, part.start + part.num_tokens)
            if self._drafts.is_on:
                self._drafts.take_in(chunks)
            self._hash_waiting(sum([part.num_tokens for part in chunks]))
        self._drafts.index_late()

    def _hash_waiting(self, num_tokens: int) -> None:
        """Of the next prompts about as many tokens as this batch has: a device that is busy for longer has more."""
        for seq in self._queues.waiting:
            if num_tokens <= 0:
                return
            self._blocks.hash_tokens(seq)
            num_tokens -= seq.num_uncomputed

    # --- decodes, a few in each step ----------------------------------------------------------------

    def cache_some(self, filled: list[Sequence]) -> None:
        """What a step does; its own decodes have filled a block of each of these."""
        waiting = self.filled
        waiting.extend(filled)
        if waiting:
            self._cache(min(max(PER_STEP, len(waiting) // self._steps), len(waiting)))

    def cache_all(self) -> None:
        """For somebody who wants to find all there is."""
        self._cache(len(self.filled))

    def cache_of(self, seq: Sequence) -> None:
        """All blocks of one sequence; one that has lost them gets there when it has them again."""
        if seq.block_table:
            told = [length for each, length in self._untold if each is seq]
            self._blocks.cache_full_blocks(seq, min(seq.num_computed, *told) if told else None)

    def wait_for_report(self, drafted: list[tuple[Sequence, int]]) -> None:
        """Of these a step has computed tokens that are told with its report, past those that they had before."""
        self._untold = drafted

    def report_made(self) -> None:
        """All tokens are told."""
        if self._untold:
            self.filled.extend([seq for seq, _ in self._untold])
            self._untold = []

    def _cache(self, count: int) -> None:
        for _ in range(count):
            self.cache_of(self.filled.popleft())
