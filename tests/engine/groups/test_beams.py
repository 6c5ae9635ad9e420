"""A beam search on sequences: what it finds under any scarcity, who is forked, who gives blocks back, and why."""

import pytest

from pagedchat import cache_events as ce
from pagedchat.engine.core import EngineCore
from pagedchat.engine.groups.beam_params import MAX_BEAM_WIDTH, BeamSearchParams
from pagedchat.engine.groups.beams import BeamGroup
from pagedchat.engine.groups.room import MAX_CHOICES
from pagedchat.engine.limits import EngineLimits
from pagedchat.engine.mirror import CacheMirror
from pagedchat.engine.sampling_params import SamplingParams
from pagedchat.errors import InvalidValueError, RequestError
from pagedchat.ops.sampling.kernels import MAX_LIKELY
from tests.engine.checks import assert_mirror_equals
from tests.engine.groups.beam_model import VOCAB, BeamRunner, ChoosingRunner, expected_search
from tests.engine.kv_simulator import expected_reply
from tests.engine.run_checker import RunChecker

EOS = frozenset({VOCAB - 1})
PROMPT = [1, 2, 3, 4, 5, 6]


class Rig:
    """An engine whose every read is checked and whose mirror is held against it after every step."""

    def __init__(self, num_blocks: int = 64, runner: type[BeamRunner] = BeamRunner, **limits: object) -> None:
        defaults = {
            "num_blocks": num_blocks, "block_size": 4, "model_len": 40, "vocab_size": VOCAB, "eos_token_ids": EOS,
        }  # fmt: skip
        self.limits = EngineLimits(**{**defaults, **limits})
        size = self.limits.block_size
        self.simulator = runner(num_blocks, size, self.limits.num_host_blocks, 5)
        self.engine = EngineCore(self.limits, RunChecker(self.simulator))
        self.mirror = CacheMirror(num_blocks, size, self.limits.num_host_blocks)
        self.events: list[ce.CacheEvent] = []

    def step(self) -> None:
        for report in (self.engine.step(), self.engine.flush()):
            if report is not None:
                self.mirror.apply(report)
                self.events += report.events
        assert_mirror_equals(self.mirror, self.engine)
        self.engine.check_integrity()

    def drain(self) -> None:
        for _ in range(3000):
            if not self.engine.has_work:
                return
            self.step()
        raise AssertionError("the engine turns round and round")

    def told(self, kind: type) -> list:
        return [event for event in self.events if isinstance(event, kind)]


def found(group: BeamGroup) -> list[list[int]]:
    return [one.token_ids for one in group.hypotheses()]


def expected(prompt: list[int], params: BeamSearchParams) -> list[list[int]]:
    return [one.token_ids for one in expected_search(prompt, params, EOS)]


# --- what is found ------------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", ["recompute", "swap"])
@pytest.mark.parametrize("num_blocks", [6, 7, 9, 64])
@pytest.mark.parametrize("caching", [True, False])
@pytest.mark.parametrize("runner", [BeamRunner, ChoosingRunner])
def test_a_search_finds_the_same_however_scarce_blocks_are(
    mode: str, num_blocks: int, caching: bool, runner: type[BeamRunner]
) -> None:
    rig = Rig(
        num_blocks,
        runner,
        num_host_blocks=64 if mode == "swap" else 0,
        preemption_mode=mode,
        enable_prefix_caching=caching,
        reserve_ahead=runner is ChoosingRunner,
    )
    for params in (BeamSearchParams(4, 16, ignore_eos=True), BeamSearchParams(2, 12, length_penalty=0.0)):
        group = rig.engine.groups.search(PROMPT, params)
        rig.drain()
        assert group.is_over
        assert found(group) == expected(PROMPT, params)
    stats = rig.engine.stats()
    assert (stats.blocks_in_use, stats.host_blocks_in_use, len(rig.engine.sequences)) == (0, 0, 0)
    if num_blocks == 6:
        assert stats.preemptions > 10
        assert (stats.swaps_out > 0) == (mode == "swap")
    elif num_blocks == 64 and isinstance(rig.simulator, ChoosingRunner):
        assert rig.simulator.num_chosen > 20


@pytest.mark.parametrize("limits", [{"max_num_seqs": 2}, {"max_num_batched_tokens": 3}, {"reserve_ahead": True}])
def test_beams_that_do_not_run_in_one_batch_find_the_same(limits: dict[str, object]) -> None:
    rig, params = Rig(**limits), BeamSearchParams(4, 12)
    prompts = [PROMPT, PROMPT[:3], [7, 7, 2, 1, 8]]
    groups = [rig.engine.groups.search(prompt, params) for prompt in prompts]
    rig.drain()
    assert [found(group) for group in groups] == [expected(prompt, params) for prompt in prompts]


@pytest.mark.parametrize("runner", [BeamRunner, ChoosingRunner])
def test_others_go_on_beside_a_search_as_if_there_were_none(runner: type[BeamRunner]) -> None:
    rig, params = Rig(runner=runner), BeamSearchParams(3, 10)
    seq_id = rig.engine.open()
    rig.engine.extend(seq_id, [3, 4], SamplingParams(max_tokens=20, ignore_eos=True))
    rig.step()
    group = rig.engine.groups.search(PROMPT, params)
    rig.drain()
    assert rig.engine.sequences[seq_id].output_token_ids == expected_reply([3, 4], 5, 20)
    assert found(group) == expected(PROMPT, params)


def test_beams_run_in_one_batch_and_the_prompt_once() -> None:
    rig = Rig()
    group = rig.engine.groups.search(PROMPT, BeamSearchParams(4, 8, ignore_eos=True))
    rig.drain()
    assert rig.simulator.batch_sizes == [6] + [4] * 7
    assert group.num_cached_tokens == 0
    assert rig.engine.stats().prefix_hits == 0


# --- blocks, and what is told of them -------------------------------------------------------------------


def test_a_beam_that_dies_gives_its_blocks_back_and_one_that_wins_is_forked() -> None:
    rig = Rig()
    rig.engine.groups.search(PROMPT, BeamSearchParams(4, 8, ignore_eos=True))
    in_use = []
    while rig.engine.has_work:
        rig.step()
        in_use.append(rig.engine.stats().blocks_in_use)
    pruned = [event for event in rig.told(ce.BlocksFreed) if event.cause == "pruned"]
    ended = [event for event in rig.told(ce.BlocksFreed) if event.cause == "ended"]
    forked = rig.told(ce.SequenceForked)
    assert len(forked) == len(pruned) + 3
    assert len(ended) == 4
    assert all(event.grouped for event in forked)
    copied = rig.told(ce.BlockCopied)
    assert {event.cause for event in copied} == {"beam"}
    assert len(copied) <= len(forked)
    assert max(in_use) <= 1 + 4 * 3, "one full block of the prompt is everybody's"
    assert in_use[-1] == 0


def test_the_mirror_knows_which_sequences_are_beams_of_which_search() -> None:
    rig = Rig()
    first = rig.engine.groups.search(PROMPT, BeamSearchParams(2, 8, ignore_eos=True))
    second = rig.engine.groups.search(PROMPT[:2], BeamSearchParams(3, 8, ignore_eos=True))
    alone = rig.engine.open()
    for _ in range(3):
        rig.step()
    of = {seq.seq_id: (seq.group_id, seq.group_kind) for seq in rig.mirror.sequences.values()}
    assert of.pop(alone) == (-1, "")
    assert len(of) == 5
    for group in (first, second):
        assert sorted(group.seq_ids) == sorted(s for s, (group_id, _) in of.items() if group_id == group.group_id)
    assert {kind for _, kind in of.values()} == {"beams"}


# --- ends that nobody wished for -----------------------------------------------------------------------


@pytest.mark.parametrize("num_steps", [0, 1, 4])
def test_a_search_that_is_broken_off_gives_all_back(num_steps: int) -> None:
    rig = Rig()
    group = rig.engine.groups.search(PROMPT, BeamSearchParams(3, 8, ignore_eos=True))
    for _ in range(num_steps):
        rig.step()
    rig.engine.groups.end(group)
    rig.engine.groups.end(group)
    assert (rig.engine.sequences, rig.engine.stats().blocks_in_use, rig.engine.has_work) == ({}, 0, False)
    assert len(found(group)) == (3 if num_steps else 1)
    assert not rig.engine.groups.are_due


def test_a_beam_whose_step_fails_ends_its_search_and_no_other() -> None:
    rig, params = Rig(), BeamSearchParams(3, 8, ignore_eos=True)
    bad, good = (rig.engine.groups.search(prompt, params) for prompt in (PROMPT, PROMPT[:3]))
    rig.step()
    rig.step()
    culprit = bad.seq_ids[1]

    def fail(place: str, batch: object) -> None:
        if place == "written" and any(part.sequence.seq_id == culprit for part in batch.scheduled):
            raise ValueError("no luck")

    rig.simulator.at = fail
    rig.drain()
    assert isinstance(bad.error, ValueError)
    assert (bad.is_over, good.error) == (True, None)
    assert found(good) == expected(PROMPT[:3], params)
    assert rig.engine.sequences == {}


def test_as_many_tokens_are_told_as_a_search_looks_at() -> None:
    assert MAX_CHOICES == MAX_LIKELY == 2 * MAX_BEAM_WIDTH


def test_nobody_else_changes_a_beam() -> None:
    rig = Rig()
    group = rig.engine.groups.search(PROMPT, BeamSearchParams(2, 4))
    rig.step()
    verbs = (rig.engine.fork, rig.engine.close, rig.engine.stop, lambda seq_id: rig.engine.rewind(seq_id, 1))
    for verb in verbs:
        with pytest.raises(RequestError, match="is a beam of search 1"):
            verb(group.seq_ids[1])
    rig.drain()
    assert group.is_over


# --- bad input ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("beam_width", 0), ("beam_width", 33), ("beam_width", 2.5), ("max_tokens", 0), ("max_tokens", None),
        ("ignore_eos", 1), ("temperature", -1), ("length_penalty", float("nan")), ("length_penalty", 11),
    ],
)  # fmt: skip
def test_a_parameter_out_of_range_is_named(name: str, value: object) -> None:
    with pytest.raises(InvalidValueError, match=name):
        BeamSearchParams(**{"beam_width": 2, "max_tokens": 4, name: value})


@pytest.mark.parametrize(
    ("changes", "params", "limits"),
    [
        ("max_tokens is 35", BeamSearchParams(2, 35), {}),
        ("max_tokens is 27", BeamSearchParams(2, 27), {"num_blocks": 8}),
        ("beam_width is 6", BeamSearchParams(6, 4), {}),
        ("beam_width is 5", BeamSearchParams(5, 2), {"num_blocks": 5}),
        ("has no tokens", BeamSearchParams(2, 4), {"prompt": []}),
        ("vocabulary", BeamSearchParams(2, 4), {"prompt": [VOCAB]}),
    ],
)
def test_what_cannot_be_is_named_and_nothing_is_held(
    changes: str, params: BeamSearchParams, limits: dict[str, object]
) -> None:
    prompt = limits.pop("prompt", PROMPT)
    rig = Rig(**limits)
    with pytest.raises(RequestError, match=changes):
        rig.engine.groups.search(prompt, params)
    assert (rig.engine.sequences, rig.engine.has_work, rig.engine.groups.are_due) == ({}, False, False)
