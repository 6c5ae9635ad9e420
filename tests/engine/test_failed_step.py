"""A step that raises: nobody reads what is not there, whoever is to blame ends alone, the others lose nothing."""

import pytest

from pagedchat import cache_events as ev
from pagedchat.engine.core import EngineCore
from pagedchat.engine.limits import EngineLimits
from pagedchat.engine.mirror import CacheMirror
from pagedchat.engine.output import SchedulerOutput
from pagedchat.engine.sampling_params import SamplingParams
from tests.engine.checks import assert_mirror_equals
from tests.engine.kv_simulator import KVSimulator, expected_reply

VOCAB, SIZE = 5, 4
PREFIX = [1, 2, 3, 4, 0, 1, 2, 3]
NUM_TOKENS = 4
GREEDY = SamplingParams(max_tokens=NUM_TOKENS, ignore_eos=True)
PLACES = ("begun", "in a move", "moved", "writing", "written")


class BreaksError(Exception):
    """The runner's own."""


class BreaksAt:
    """Raises at one place, once or whenever a sequence is in the batch."""

    def __init__(self, place: str, error: type[BaseException] = BreaksError, culprit: int = 0) -> None:
        self.place, self.error, self.culprit = place, error, culprit
        self.num_raised = 0

    def __call__(self, place: str, batch: SchedulerOutput) -> None:
        if place != self.place or (not self.culprit and self.num_raised):
            return
        if not self.culprit or any(part.sequence.seq_id == self.culprit for part in batch.scheduled):
            self.num_raised += 1
            raise self.error


class Rig:
    """An engine on a symbolic cache, and its mirror."""

    def __init__(self, num_blocks: int = 4, num_host_blocks: int = 8) -> None:
        self.runner = KVSimulator(num_blocks, SIZE, num_host_blocks, VOCAB)
        limits = EngineLimits(
            num_blocks=num_blocks, num_host_blocks=num_host_blocks, block_size=SIZE, preemption_mode="swap"
        )
        self.engine = EngineCore(limits, self.runner)
        self.mirror = CacheMirror(num_blocks, SIZE, num_host_blocks)
        self.events: list[ev.CacheEvent] = []

    def ask(self, prompt: list[int], seq_id: int | None = None) -> int:
        seq_id = self.engine.open() if seq_id is None else seq_id
        self.engine.extend(seq_id, prompt, GREEDY)
        return seq_id

    def step(self) -> None:
        try:
            report = self.engine.step()
        except (BreaksError, KeyboardInterrupt):
            report = self.engine.flush()
        if report is not None:
            self.mirror.apply(report)
            self.events += report.events
        self.engine.check_integrity()
        assert_mirror_equals(self.mirror, self.engine)

    def finish(self) -> None:
        while self.engine.has_work:
            self.step()

    def assert_reply(self, seq_id: int) -> None:
        seq = self.engine.sequences[seq_id]
        prompt = seq.token_ids[: seq.num_prompt_tokens]
        room = self.engine.limits.max_len - len(prompt)
        assert seq.output_token_ids == expected_reply(prompt, VOCAB, min(NUM_TOKENS, room))

    def kinds(self, kind: type[ev.CacheEvent]) -> list[ev.CacheEvent]:
        return [event for event in self.events if isinstance(event, kind)]


def swapped_out(error: BreaksAt) -> tuple[Rig, int]:
    """A rig whose first chat is in host memory, and comes back with the next steps."""
    rig = Rig()
    first = rig.ask(PREFIX)
    rig.finish()
    rig.ask([4, 4, 4, 4, 4, 3, 3, 3, 3, 0, 0])
    rig.finish()
    assert rig.engine.sequences[first].host_block_table
    rig.runner.at = error
    rig.ask([2], first)
    return rig, first


@pytest.mark.parametrize("error", [BreaksError, KeyboardInterrupt])
@pytest.mark.parametrize("place", PLACES)
def test_the_next_prompt_with_that_prefix_reads_its_own_tokens(place: str, error: type[BaseException]) -> None:
    breaks = BreaksAt(place, error)
    rig, first = swapped_out(breaks)
    rig.step()
    assert breaks.num_raised == 1
    rig.engine.close(first)
    again = rig.ask([*PREFIX, 0])
    rig.finish()
    rig.assert_reply(again)


@pytest.mark.parametrize("place", PLACES)
def test_an_interrupted_request_goes_on_as_if_nothing_had_been(place: str) -> None:
    breaks = BreaksAt(place, KeyboardInterrupt)
    rig, first = swapped_out(breaks)
    rig.finish()
    assert breaks.num_raised == 1
    rig.assert_reply(first)


def test_what_was_to_be_moved_is_computed_again() -> None:
    rig, first = swapped_out(BreaksAt("in a move", KeyboardInterrupt))
    num_computed = rig.engine.sequences[first].num_computed
    rig.step()
    assert ev.ContentsLost(first, num_computed, "waiting") in rig.events
    assert rig.engine.sequences[first].num_computed == 0
    rig.finish()
    rig.assert_reply(first)


def test_blocks_that_a_broken_prefill_was_to_fill_are_not_found() -> None:
    rig = Rig()
    rig.runner.at = BreaksAt("writing", KeyboardInterrupt)
    seq_id = rig.ask(PREFIX)
    rig.engine._step = 3  # the simulator calls `meanwhile` before it writes in every fourth step
    rig.step()
    assert len(rig.engine.blocks.cache) == 0
    assert rig.engine.sequences[seq_id].block_hashes == []
    assert rig.kinds(ev.BlockUncached)
    rig.finish()
    rig.assert_reply(seq_id)


def test_blocks_that_the_one_to_blame_was_to_fill_are_not_found() -> None:
    rig = Rig()
    seq_id = rig.ask(PREFIX)
    rig.runner.at = BreaksAt("writing", culprit=seq_id)
    rig.engine._step = 3
    rig.step()
    assert len(rig.engine.blocks.cache) == 0
    assert rig.engine.sequences[seq_id].finish_reason == "error"


def test_blocks_that_were_full_before_a_broken_step_are_found_as_before() -> None:
    rig = Rig(num_blocks=8)
    seq_id = rig.ask(PREFIX)
    rig.finish()
    full = set(rig.engine.blocks.cache.block_ids)
    rig.runner.at = BreaksAt("writing", KeyboardInterrupt)
    rig.ask([1, 2, 3, 4, 0, 1, 2], seq_id)
    rig.engine._step = 3
    rig.step()
    assert set(rig.engine.blocks.cache.block_ids) == full
    rig.finish()
    rig.assert_reply(seq_id)


def test_blocks_that_others_have_too_stay_found_where_those_are() -> None:
    rig = Rig(num_blocks=8)
    rig.ask(PREFIX)
    rig.finish()
    late = rig.ask(PREFIX[:2])
    rig.finish()
    rig.engine.rewind(late, 2)
    full = set(rig.engine.blocks.cache.block_ids)
    rig.runner.at = BreaksAt("writing", KeyboardInterrupt)
    rig.ask(PREFIX[2:], late)  # it goes on inside a block of its own, so it looks nothing up
    rig.engine._step = 3
    rig.step()
    assert set(rig.engine.blocks.cache.block_ids) == full
    rig.finish()
    rig.assert_reply(late)


def test_who_was_to_be_moved_to_host_memory_computes_its_tokens_again_and_nobody_else_does() -> None:
    rig = Rig(num_blocks=8)
    parked, other = rig.ask([4, *PREFIX]), rig.ask([3, 3])
    rig.finish()
    num_computed = rig.engine.sequences[parked].num_computed
    rig.runner.at = BreaksAt("begun", KeyboardInterrupt)
    newcomer = rig.ask([0] * 16)
    rig.step()
    assert rig.kinds(ev.SwappedOut)
    assert rig.kinds(ev.ContentsLost) == [ev.ContentsLost(parked, num_computed, "parked")]
    assert (rig.engine.sequences[parked].num_computed, rig.engine.sequences[parked].host_block_table) == (0, [])
    assert rig.engine.blocks.host.pool.num_in_use == 0
    for seq_id in (parked, other):
        rig.ask([2], seq_id)
    rig.finish()
    for seq_id in (parked, other, newcomer):
        rig.assert_reply(seq_id)


# --- who is to blame --------------------------------------------------------------------------------


@pytest.mark.parametrize("place", ["begun", "moved", "writing", "written"])
def test_who_raises_ends_alone(place: str) -> None:
    rig = Rig(num_blocks=16)
    good, bad, fine = (rig.ask([token, *PREFIX]) for token in range(3))
    rig.runner.at = BreaksAt(place, culprit=bad)
    rig.finish()
    rig.assert_reply(good)
    rig.assert_reply(fine)
    assert rig.engine.sequences[bad].finish_reason == "error"
    assert isinstance(rig.engine.failures[bad], BreaksError)
    assert ev.SequenceParked(bad, "error") in rig.events


def test_who_failed_can_be_asked_again() -> None:
    rig = Rig(num_blocks=16)
    seq_id = rig.ask(PREFIX)
    rig.runner.at = BreaksAt("writing", culprit=seq_id)
    rig.finish()
    rig.runner.at = BreaksAt("")
    rig.engine.rewind(seq_id, len(PREFIX))
    rig.ask([1], seq_id)
    assert seq_id not in rig.engine.failures
    rig.finish()
    rig.assert_reply(seq_id)


def test_what_others_computed_beside_who_failed_is_found_and_their_forks_read_their_own() -> None:
    """A prompt in two chunks: the fork comes between them, and its next token begins a block as the first did."""
    rig = Rig(num_blocks=12)
    rig.engine.scheduler.limits = EngineLimits(num_blocks=12, block_size=SIZE, max_num_batched_tokens=9)
    bad, good = rig.ask([4]), rig.ask([*PREFIX, PREFIX[0], 4])
    rig.runner.at = BreaksAt("written", culprit=bad)
    rig.step()
    assert rig.engine.sequences[good].num_computed == len(PREFIX)
    assert len(rig.engine.sequences[good].block_hashes) == len(PREFIX) // SIZE
    child = rig.engine.fork(good)
    rig.engine.stop(good)
    rig.finish()
    assert rig.engine.sequences[child].output_token_ids == expected_reply(
        [*PREFIX, PREFIX[0], 4], VOCAB, NUM_TOKENS
    )


def test_why_somebody_failed_is_forgotten_with_who_failed() -> None:
    rig = Rig(num_blocks=16)
    seq_id = rig.ask(PREFIX)
    rig.runner.at = BreaksAt("writing", culprit=seq_id)
    rig.finish()
    rig.engine.close(seq_id)
    assert not rig.engine.failures


def test_where_everybody_raises_the_runner_is_to_blame() -> None:
    rig = Rig(num_blocks=16)
    seq_ids = [rig.ask([token, *PREFIX]) for token in range(2)]
    rig.runner.at = lambda place, batch: _raise(BreaksError)
    rig.step()
    with pytest.raises(BreaksError):
        rig.engine.step()
    rig.runner.at = lambda place, batch: None
    rig.finish()
    for seq_id in seq_ids:
        rig.assert_reply(seq_id)


def test_of_several_that_raise_the_first_error_is_told_and_each_ran_as_part_of_that_step() -> None:
    rig, steps = Rig(num_blocks=16), []
    seq_ids = [rig.ask([token, *PREFIX]) for token in range(2)]

    def breaks(place: str, batch: SchedulerOutput) -> None:
        steps.append(batch.step)
        raise BreaksError(batch.scheduled[0].sequence.seq_id)

    rig.runner.at = breaks
    with pytest.raises(BreaksError, match=str(seq_ids[0])):
        rig.engine.step()
    assert steps == [1, 1, 1]


def test_a_runner_that_is_lost_says_so() -> None:
    rig = Rig(num_blocks=16)
    rig.ask(PREFIX)
    rig.runner.at = BreaksAt("moved")
    rig.runner.check = lambda: _raise(OSError)
    with pytest.raises(OSError):  # noqa: PT011 - it has no message
        rig.engine.step()


def test_a_broken_invariant_is_nobodys_fault() -> None:
    rig = Rig(num_blocks=16)
    rig.ask(PREFIX)
    rig.runner.at = BreaksAt("moved", AssertionError)
    with pytest.raises(AssertionError):
        rig.engine.step()


def _raise(error: type[BaseException]) -> None:
    raise error
