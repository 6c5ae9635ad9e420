"""Where sequences stand, and in which order."""

import pytest

from pagedchat.engine.queues import Queues
from pagedchat.engine.sequence import Sequence


def sequence(seq_id: int, priority: int = 0) -> Sequence:
    """The higher its id, the later it came."""
    seq = Sequence(seq_id)
    seq.priority, seq.arrival = priority, seq_id
    return seq


def ids(queue: list[Sequence]) -> list[int]:
    return [seq.seq_id for seq in queue]


@pytest.mark.parametrize("queue", ["waiting", "running", "swapped"])
def test_higher_priority_goes_first_then_whoever_came_first(queue) -> None:
    queues = Queues()
    for seq in (sequence(3), sequence(1), sequence(4, priority=1), sequence(2)):
        queues.enqueue(seq, queue)
        assert seq.status == queue
    assert ids(getattr(queues, queue)) == [4, 1, 2, 3]


@pytest.mark.parametrize("gone", [1, 2, 3])
def test_whoever_is_removed_leaves_the_others_in_order(gone: int) -> None:
    queues, all_three = Queues(), [sequence(1), sequence(2), sequence(3)]
    for seq in all_three:
        queues.enqueue(seq, "running")
    queues.remove(all_three[gone - 1])
    assert ids(queues.running) == [seq_id for seq_id in (1, 2, 3) if seq_id != gone]


def test_parked_ones_stand_in_the_order_in_which_they_were_parked() -> None:
    queues, with_blocks, without = Queues(), sequence(2), sequence(1)
    with_blocks.block_table = [0]
    for seq in (with_blocks, without):
        queues.park(seq)
    assert list(queues.parked.items()) == [(2, with_blocks), (1, without)]
    assert list(queues.parked_on_device.items()) == [(2, with_blocks)]
    queues.remove(with_blocks)
    assert (list(queues.parked), list(queues.parked_on_device)) == ([1], [])


def test_every_move_counts_as_a_change_and_parking_as_none_of_its_own() -> None:
    queues, seq = Queues(), sequence(1)
    seen = [queues.num_changes]
    queues.park(seq)
    assert queues.num_changes == seen[-1]
    for move in (
        lambda: queues.remove(seq),
        lambda: queues.enqueue(seq, "waiting"),
        lambda: queues.set_priority(seq, 2),
        lambda: queues.remove(seq),
    ):
        move()
        assert queues.num_changes > seen[-1]
        seen.append(queues.num_changes)


def test_a_new_priority_moves_a_sequence_within_its_queue() -> None:
    queues, last, parked = Queues(), sequence(2), sequence(3)
    for seq in (sequence(1), last):
        queues.enqueue(seq, "swapped")
    queues.set_priority(last, 1)
    assert (ids(queues.swapped), last.status) == ([2, 1], "swapped")
    queues.park(parked)
    queues.set_priority(parked, 4)
    assert (parked.priority, list(queues.parked)) == (4, [3])
