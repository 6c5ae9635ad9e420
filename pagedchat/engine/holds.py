"""Why sequences that wait did not come into the batch, told when it changes.

The scheduler notes a reason for each one that it asks in a step; what it told of others before does not hold any
more then, unless it hangs on a limit and pins alone and these are as they were. Knows no queues.
"""

from pagedchat import cache_events as ev
from pagedchat.engine.block_manager import BlockManager
from pagedchat.engine.sequence import Sequence


class Holds:
    """The reasons of one scheduler.

    Args:
        blocks: hears what is told, as its own events.
    """

    def __init__(self, blocks: BlockManager) -> None:
        self._blocks = blocks
        self._before: list[Sequence] = []
        """Those of whom a reason was noted in the step before."""
        self._asked: list[Sequence] = []

    def begin(self) -> None:
        """Another step: nobody has been asked."""
        if self._asked:
            self._before, self._asked = self._asked, []

    def note(self, seq: Sequence, cause: ev.HoldCause, num_needed: int = 0, num_there: int = 0) -> None:
        """This one waits on, and why."""
        self._asked.append(seq)
        self._tell(seq, ev.SequenceHeld(seq.seq_id, cause, num_needed, num_there))

    def note_misfit(self, seq: Sequence, num_usable: int) -> None:
        """Limit and pins leave it this many blocks, which are too few."""
        self.note(seq, self._misfit_cause(), self._blocks.num_blocks_for(len(seq)), num_usable)

    def end(self) -> None:
        """All that were to be asked have been."""
        if not self._before:
            return
        before, self._before = self._before, []
        asked = {seq.seq_id for seq in self._asked}
        for seq in before:
            if seq.held is not None and seq.seq_id not in asked and seq.status in ("waiting", "swapped"):
                self._say_again(seq, seq.held)

    def _say_again(self, seq: Sequence, told: ev.SequenceHeld) -> None:
        """Of one that was not asked: limit and pins may still leave it too little, all else has passed."""
        if told.cause in ("limit", "pins", "limit and pins"):
            usable = self._blocks.num_usable(seq)
            if usable < self._blocks.num_blocks_for(len(seq)):
                self.note_misfit(seq, usable)
                return
        self._tell(seq, ev.SequenceHeld(seq.seq_id, "turn"))

    def _misfit_cause(self) -> ev.HoldCause:
        pool = self._blocks.pool
        if pool.pinned:
            return "limit and pins" if pool.withheld else "pins"
        return "limit"

    def _tell(self, seq: Sequence, held: ev.SequenceHeld) -> None:
        if seq.held != held:
            seq.held = held
            self._blocks.events.append(held)
