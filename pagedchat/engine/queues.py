"""Where every sequence of the scheduler stands: waiting, running, swapped, or parked; and why those that wait do.

The three queues are kept in order of precedence (higher priority first, then older first). Parked sequences are
kept in the order in which they were parked; those that hold device blocks are kept apart too, since they are the
first to give them back.
"""

from bisect import bisect_left, insort
from collections import OrderedDict
from typing import Literal

from pagedchat import cache_events as ev
from pagedchat.engine.block_manager import BlockManager
from pagedchat.engine.sequence import Sequence

Queue = Literal["waiting", "running", "swapped"]


def precedence(seq: Sequence) -> tuple[int, int]:
    """Sorts who goes first to the front."""
    return (-seq.priority, seq.arrival)


class Queues:
    """Membership of sequences; `Sequence.status` always names the queue it is in."""

    def __init__(self) -> None:
        self.waiting: list[Sequence] = []
        self.running: list[Sequence] = []
        self.swapped: list[Sequence] = []
        self.parked: OrderedDict[int, Sequence] = OrderedDict()
        self.parked_on_device: OrderedDict[int, Sequence] = OrderedDict()
        self.num_changes = 0
        """How often a sequence came into a queue or left its place."""

    def enqueue(self, seq: Sequence, queue: Queue) -> None:
        """Into its place in `queue`."""
        self.num_changes += 1
        seq.status = queue
        place: list[Sequence] = getattr(self, queue)
        if not place or precedence(place[-1]) <= precedence(seq):  # as newcomers do, and those that start together
            place.append(seq)
        else:
            insort(place, seq, key=precedence)

    def park(self, seq: Sequence) -> None:
        """Among the parked ones, as the newest."""
        seq.status = "parked"
        self.parked[seq.seq_id] = seq
        if seq.block_table:
            self.parked_on_device[seq.seq_id] = seq

    def remove(self, seq: Sequence) -> None:
        """Out of wherever it stands."""
        self.num_changes += 1
        if seq.status == "parked":
            del self.parked[seq.seq_id]
            self.parked_on_device.pop(seq.seq_id, None)
            return
        queue: list[Sequence] = getattr(self, seq.status)
        in_front = queue[0] is seq  # whoever is admitted, and the first of many that end together
        del queue[0 if in_front else bisect_left(queue, precedence(seq), key=precedence)]

    def set_priority(self, seq: Sequence, priority: int) -> None:
        """Move the sequence to where its new priority puts it."""
        if seq.status == "parked":
            seq.priority = priority
            return
        queue = seq.status
        self.remove(seq)
        seq.priority = priority
        self.enqueue(seq, queue)


class Holds:
    """Why sequences that wait did not come into the batch, told when it changes.

    The scheduler notes a reason for each one that it asks in a step; what it told of others before does not hold
    any more then, unless it hangs on a limit and pins alone and these are as they were.

    Args:
        blocks: hears what is told, as its own events.
    """

    def __init__(self, blocks: BlockManager) -> None:
        self._blocks = blocks
        self.before: list[Sequence] = []
        """Those of whom a reason was noted in the step before."""
        self.asked: list[Sequence] = []
        """Likewise in this step."""

    def begin(self) -> None:
        """Another step: nobody has been asked. For whoever noted nothing in the last one there is nothing to do."""
        self.before, self.asked = self.asked, []

    def note(self, seq: Sequence, cause: ev.HoldCause, num_needed: int = 0, num_there: int = 0) -> None:
        """This one waits on, and why."""
        self.asked.append(seq)
        self._tell(seq, ev.SequenceHeld(seq.seq_id, cause, num_needed, num_there))

    def note_misfit(self, seq: Sequence, num_usable: int) -> None:
        """Limit and pins leave it this many blocks, which are too few."""
        self.note(seq, self._misfit_cause(), self._blocks.num_blocks_for(len(seq)), num_usable)

    def end(self) -> None:
        """All that were to be asked have been. To be called where somebody had a reason before."""
        before, self.before = self.before, []
        asked = {seq.seq_id for seq in self.asked}
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
