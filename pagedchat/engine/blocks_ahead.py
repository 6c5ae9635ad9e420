"""Blocks that running sequences get before they need them, so that a runner may begin a step unasked.

A sequence needs its next block one step before it writes there. Hundreds that began together need theirs in the
same step, and to find them all then would keep a GPU waiting. So where there are many, they take turns: in each
step some of them get one block beyond the one that they write to, if they have none, and everybody has had a turn
twice by the time a block is full. Nobody comes to the end of its blocks then. Few sequences get theirs in time, no
sooner.

The price of turns is one block at most for each running sequence, held for as long as it takes to fill the one
before. None is given where there are not several to spare for each, nor for a token that will not be computed, and
it goes back with the others when a sequence is parked, cut back, forked or preempted.
"""

from collections.abc import Iterable

from pagedchat.engine.batch import Lockstep
from pagedchat.engine.block_manager import BlockManager
from pagedchat.engine.sequence import Sequence

AT_ONCE = 32
"""Sequences that may get their next blocks in one step without anybody noticing."""
_PLENTY = 4
"""Blocks to every running sequence, from which on none of them will soon be short of any."""


class BlocksAhead:
    """Gives running sequences their next blocks.

    Args:
        blocks: whose blocks.
        gives: whether it does; otherwise nobody has a block before the step that writes to it.
        at_once: with more sequences than these they take turns.
    """

    def __init__(self, blocks: BlockManager, gives: bool, at_once: int = AT_ONCE) -> None:
        self._blocks = blocks
        self._gives = gives
        self.at_once = at_once
        self._most_turns = max(1, blocks.block_size // 2)
        """Steps in which everybody has a turn, at most."""
        self._next = 0
        """Whose turn it is: an index among those that run."""
        self.given: list[int] = []
        """Who has got blocks in this step: indices among those that run. The scheduler empties it before each."""

    def begin_reply(self, seq: Sequence, end: int, num_running: int) -> None:
        """The block for the first token of a reply, where the prompt fills its own blocks and ends in this step.

        Args:
            seq: may write up to `end`.
            end: tokens that are computed after this step.
            num_running: sequences that may need blocks.
        """
        needs_one = len(seq.token_ids) == end == seq.writable_len < seq.stop_length - 1
        if self._gives and needs_one and self._blocks.pool.num_available > _PLENTY * num_running:
            self._blocks.append_block(seq)

    def take_turns(self, running: list[Sequence]) -> None:
        """In every step in which there are more than `at_once`, for some of those that run."""
        if not self._gives:
            return
        start = self._next if self._next < len(running) else 0
        self._next = min(start + max(self.at_once, -(-len(running) // self._most_turns)), len(running))
        self.give(running, range(start, self._next))

    def give(self, running: list[Sequence], indices: Iterable[int]) -> None:
        """The next block for each of these that has none beyond the one it writes to."""
        num_spare = self._blocks.pool.num_available - _PLENTY * len(running) if self._gives else 0
        for index in indices:
            seq = running[index]
            room = seq.writable_len - seq.num_computed
            if num_spare > 0 and 0 < room <= self._blocks.block_size and seq.writable_len + 1 < seq.stop_length:
                self._blocks.append_block(seq)
                self.given.append(index)
                num_spare -= 1

    def suffice(self, lockstep: Lockstep) -> bool:
        """Whether everybody in lockstep may write one more token, as far as blocks are there for it.

        Who has come to the end of its blocks gets one, and the lockstep's room is counted anew. To be asked where
        there is room for one token at most.

        Returns:
            False if somebody must give blocks to others for that.
        """
        sequences = lockstep.sequences
        at_end = [i for i, seq in enumerate(sequences) if seq.writable_len - seq.num_computed <= 1]
        for i in at_end:
            seq = sequences[i]
            if seq.writable_len <= seq.num_computed:
                if not self._blocks.prepare_write(seq, seq.num_computed + 1):
                    return False
                self.given.append(i)
        self.give(sequences, at_end)
        lockstep.room = min([seq.writable_len - seq.num_computed for seq in sequences])
        return True
