"""Where every sequence of the scheduler stands: waiting, running, swapped, or parked.

The three queues are kept in order of precedence (higher priority first, then older first). Parked sequences are
kept in the order in which they were parked; those that hold device blocks are kept apart too, since they are the
first to give them back.
"""

from bisect import bisect_left, insort
from collections import OrderedDict
from typing import Literal

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
