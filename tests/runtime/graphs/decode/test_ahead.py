"""The step after the present one: whether it is the one that is asked for, and when it may be begun."""

from dataclasses import replace
from typing import Any

from pagedchat.engine.output import ScheduledSequence
from pagedchat.engine.sampling_params import SamplingParams
from pagedchat.runtime.graphs.decode.ahead import RunningStep, begins_with
from pagedchat.runtime.graphs.decode.buckets import Bucket
from tests.runtime.graphs.case import decoding


def running(parts: list[ScheduledSequence], **fields: Any) -> RunningStep:
    step = RunningStep(
        bucket=Bucket(4, 256), step=None, number=1, choice="drawn", asked_rows=4, rows=list(range(len(parts))),
        sequences=[p.sequence for p in parts], params=[p.sequence.sampling_params for p in parts],
        seeds=[p.sequence.seed for p in parts], starts=[p.start for p in parts],
        tables=[p.sequence.block_table.copy() for p in parts],
        token_ids=[p.sequence.token_ids[-1] for p in parts],
    )  # type: ignore[arg-type]  # fmt: skip
    return replace(step, **fields)


def test_the_next_step_is_known_unless_something_changes() -> None:
    parts = [decoding(1, 9, [4]), decoding(2, 20, [5, 6])]
    step = running(parts)
    assert step.for_batch(parts) is step
    seen = step.for_batch(parts[1:])
    assert seen is not None
    assert (seen.rows, seen.starts, seen.tables) == ([1], [19], [[5, 6]])
    assert step.for_batch([*parts, decoding(3, 2, [7])]) is None
    parts[1].sequence.block_table.append(9)
    assert step.for_batch(parts) is step
    parts[1].sequence.block_table[0] = 3
    assert step.for_batch(parts) is None
    assert step.for_batch(parts[:1]) is not None
    parts[0].sequence.seed = 3
    assert step.for_batch(parts[:1]) is None
    parts[0].sequence.seed = 0
    parts[0].sequence.token_ids[-1] += 1
    assert step.for_batch(parts[:1]) is None
    parts[0].sequence.token_ids[-1] -= 1
    parts[0].sequence.sampling_params = SamplingParams(temperature=0.5)
    assert step.for_batch(parts[:1]) is None
    assert begins_with([1, 2, 3], [1, 2])
    assert not begins_with([1], [1, 2])


def test_a_step_of_other_tokens_is_not_the_one_that_is_asked_for() -> None:
    part = decoding(1, 9, [4])
    step = running([part])
    assert step.for_batch([ScheduledSequence(part.sequence, 8, 1, False)]) is None
    part.sequence.token_ids.append(part.sequence.token_ids[-1])
    assert step.for_batch([ScheduledSequence(part.sequence, 9, 1, True)]) is None


def test_nobody_runs_ahead_of_a_block_or_a_bucket_or_the_end() -> None:
    part = decoding(1, 16, [4], writable_len=17)
    assert running([part]).next().may_begin()
    assert not running([part, decoding(2, 16, [5], writable_len=16)]).next().may_begin()
    assert not running([part], bucket=Bucket(4, 16)).next().may_begin()
    assert running([part], bucket=Bucket(4, 256, 1, 9), own_starts=[8]).next().may_begin()
    assert not running([part], bucket=Bucket(4, 256, 1, 8), own_starts=[8]).next().may_begin()
    part.sequence.stop_length = 17
    assert not running([part]).next().may_begin()


def test_rows_of_sequences_that_ended_are_padding_in_the_next_step() -> None:
    parts = [decoding(1, 9, [4]), decoding(2, 20, [5, 6])]
    step = running(parts)
    parts[0].sequence.block_table.append(7)
    seen = step.for_batch(parts[1:])
    assert seen is not None
    assert seen.grown == []
    later = seen.next()
    assert later.positions == [-1, 20]
    assert later.sequences == [parts[1].sequence]
    assert step.for_batch(parts) is step
    assert step.grown == [0]
    later = step.next()
    assert later.positions == [9, 20]
    assert later.grown == []
    assert later.tables == [[4, 7], [5, 6]]
    assert step.tables == [[4], [5, 6]]


def test_who_goes_on_can_be_told_before_the_tokens_are_known() -> None:
    parts = [decoding(1, 9, [4]), decoding(2, 20, [5, 6])]
    step = running(parts)
    first, second = (part.sequence for part in parts)
    first.stop_length, first.writable_len = 10, 16
    second.stop_length, second.writable_len = 40, 32
    assert step.going_on(False) == [1]
    first.stop_length = 11
    assert step.going_on(False) == [0, 1]
    second.writable_len = parts[1].start + 1
    assert step.going_on(False) is None
    assert step.going_on(True) == [0, 1]
