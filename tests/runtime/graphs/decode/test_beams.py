"""Beams that the device chooses and moves, steps ahead of the host: found is the same, and nothing is mixed up."""

import random
from typing import Any

import pytest
import torch

from pagedchat.engine.core import EngineCore
from pagedchat.engine.groups.beam_params import BeamSearchParams
from pagedchat.engine.groups.beams import BeamGroup
from pagedchat.engine.mirror import CacheMirror
from pagedchat.engine.sampling_params import SamplingParams
from pagedchat.runtime.graphs.capture import GraphRecorder
from pagedchat.runtime.graphs.decode.beam_step import BeamStep
from pagedchat.runtime.graphs.decode.steps import Step
from tests.engine.checks import assert_mirror_equals
from tests.fakes import FakeClock
from tests.ops.paged_case import DEVICES
from tests.runtime.graphs.case import LATE, VOCAB_SIZE, make_engine, make_runner, tiny_model


class Rig:
    """An engine whose mirror is held against it after every step."""

    def __init__(
        self,
        model: Any,
        num_blocks: int = 100,
        *,
        captured: bool,
        num_host_blocks: int = 0,
        clock: FakeClock | None = None,
        **limits: Any,
    ) -> None:
        self.runner = make_runner(
            model, num_blocks, captured=captured, num_host_blocks=num_host_blocks, clock=clock
        )
        self.core: EngineCore = make_engine(self.runner, num_host_blocks=num_host_blocks, **limits)
        self.mirror = CacheMirror(num_blocks, self.core.limits.block_size, num_host_blocks)

    def step(self) -> None:
        for report in (self.core.step(), self.core.flush()):
            if report is not None:
                self.mirror.apply(report)
        assert_mirror_equals(self.mirror, self.core)

    def drain(self) -> None:
        while self.core.has_work:
            self.step()
        self.core.check_integrity()


def prompt_of(length: int, seed: int = 1) -> list[int]:
    return random.Random(seed).choices(range(VOCAB_SIZE), k=length)


def check_same(group: BeamGroup, other: BeamGroup) -> None:
    found, wanted = group.hypotheses(), other.hypotheses()
    assert [one.token_ids for one in found] == [one.token_ids for one in wanted]
    assert [one.cum_logprob for one in found] == pytest.approx([one.cum_logprob for one in wanted], abs=2e-3)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("family", ["opt", "llama"])
@pytest.mark.parametrize("width", [1, 2, 4, 7])
def test_a_search_on_the_device_finds_the_same(family: str, width: int, device: str) -> None:
    model, groups = tiny_model(family, device, torch.float32), []
    for captured in (False, True):
        rig = Rig(model, captured=captured)
        for params in (BeamSearchParams(width, 40, ignore_eos=True), BeamSearchParams(width, 20, length_penalty=0)):
            groups.append(rig.core.groups.search(prompt_of(21), params))
            rig.drain()
        assert rig.core.stats().blocks_in_use == 0
    for group, other in zip(groups[:2], groups[2:], strict=True):
        check_same(other, group)
    assert rig.runner.decodes.num_ahead > 50


@pytest.mark.parametrize("device", DEVICES)
def test_searches_and_chats_side_by_side_go_on_as_if_they_were_alone(device: str) -> None:
    model, found = tiny_model("opt", device, torch.float32), []
    for captured in (False, True):
        rig, chats = Rig(model, captured=captured), []
        for kind in ({"temperature": 0, "logprobs": 3}, {"temperature": 0.8, "seed": 3, "frequency_penalty": 0.5}):
            chats.append(rig.core.open())
            rig.core.extend(chats[-1], prompt_of(9), SamplingParams(**kind, max_tokens=45, ignore_eos=True))
        groups = [
            rig.core.groups.search(prompt_of(length, seed=length), BeamSearchParams(width, 30, ignore_eos=True))
            for length, width in ((5, 3), (16, 4), (40, 2))
        ]
        rig.drain()
        found.append((groups, [rig.core.sequences[chat] for chat in chats]))
    (groups, chats_alone), (others, chats_beside) = found
    for group, other in zip(groups, others, strict=True):
        check_same(other, group)
    for chat, other_chat in zip(chats_alone, chats_beside, strict=True):
        assert chat.token_ids == other_chat.token_ids
        assert [(each.token_ids, each.rank) for each in chat.logprobs] == [
            (each.token_ids, each.rank) for each in other_chat.logprobs
        ]
    assert rig.runner.decodes.num_ahead > 20


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("mode", ["recompute", "swap"])
@pytest.mark.parametrize("num_blocks", [11, 14])
def test_steps_that_were_begun_in_vain_leave_everything_as_it_was(num_blocks: int, mode: str, device: str) -> None:
    """Chats come and go while a search is steps ahead, and take blocks from it."""
    model, groups = tiny_model("opt", device, torch.float32), []
    for captured in (False, True):
        source, host = random.Random(7), 32 if mode == "swap" else 0
        rig = Rig(model, num_blocks, captured=captured, num_host_blocks=host, preemption_mode=mode)
        group = rig.core.groups.search(prompt_of(35), BeamSearchParams(4, 60, ignore_eos=True))
        while not group.is_over:
            rig.step()
            if source.random() < 0.15:
                chat = rig.core.open()
                rig.core.extend(
                    chat, prompt_of(source.randrange(1, 40), 5), SamplingParams(temperature=0, max_tokens=5)
                )
                for _ in range(source.randrange(8)):
                    rig.step()
                rig.core.close(chat)
        groups.append(group)
    check_same(groups[1], groups[0])
    assert rig.runner.decodes.num_ahead > 5
    assert rig.core.stats().preemptions > 0 or num_blocks > 11


@pytest.mark.parametrize("device", DEVICES)
def test_tokens_that_end_a_beam_are_known_to_the_device(device: str) -> None:
    model, groups, params = tiny_model("llama", device, torch.float32), [], BeamSearchParams(3, 24)
    ends: frozenset[int] = frozenset()
    for captured in (False, False, True):
        rig = Rig(model, captured=captured, eos_token_ids=ends)
        groups.append(rig.core.groups.search(prompt_of(12), params))
        rig.drain()
        ends = frozenset(one.token_ids[5] for one in groups[0].hypotheses())
    check_same(groups[2], groups[1])
    assert any(one.is_whole for one in groups[1].hypotheses())
    assert rig.runner.decodes.num_ahead > 10


def test_steps_of_beams_are_captured_once_for_each_number_of_searches(monkeypatch: pytest.MonkeyPatch) -> None:
    captured: list[int] = []

    class Counted(BeamStep):
        def __init__(self, *args: Any) -> None:
            super().__init__(*args)
            captured.append(args[3].shape[1])

    monkeypatch.setattr("pagedchat.runtime.graphs.decode.beam_store.BeamStep", Counted)
    rig = Rig(tiny_model("opt", "cpu", torch.float32), captured=True)
    params = BeamSearchParams(3, 12, ignore_eos=True)
    for num_searches in (1, 1, 2, 1, 2):
        for seed in range(num_searches):
            rig.core.groups.search(prompt_of(9, seed), params)
        rig.drain()
    assert sorted(captured) == [1, 2]


def test_where_no_step_of_beams_can_be_captured_the_engine_chooses(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    model, groups = tiny_model("opt", "cpu", torch.float32), []
    for refuses in (False, True):
        rig = Rig(model, captured=True)
        if refuses:

            def capture(_step: object) -> None:
                raise RuntimeError("no room")

            monkeypatch.setattr(rig.runner.decodes.shelves[1]._recorder, "capture", capture)
        groups.append(rig.core.groups.search(prompt_of(21), BeamSearchParams(4, 30, ignore_eos=True)))
        rig.drain()
    check_same(*groups)
    assert [record.getMessage() for record in caplog.records] == [
        "Steps of beams in 4 rows are not captured: no room"
    ]


def test_a_step_that_is_interrupted_leaves_no_beam_with_contents_that_nobody_knows() -> None:
    model = tiny_model("opt", "cpu", torch.float32)
    wanted, rig = Rig(model, captured=False), Rig(model, captured=True)
    groups = [
        each.core.groups.search(prompt_of(35), BeamSearchParams(4, 40, ignore_eos=True)) for each in (wanted, rig)
    ]
    wanted.drain()
    finish, calls = rig.runner.decodes.finish, 0

    def interrupted(begun: Any) -> Any:
        nonlocal calls
        calls += 1
        if calls % 7 == 0:
            raise KeyboardInterrupt
        return finish(begun)

    rig.runner.decodes.finish = interrupted
    num_interrupts = 0
    while rig.core.has_work:
        try:
            rig.step()
        except KeyboardInterrupt:
            num_interrupts += 1
    check_same(groups[1], groups[0])
    assert num_interrupts > 3


def test_a_search_waits_for_no_capture_and_is_chosen_on_the_device_once_it_is_done(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    ahead: list[int] = []
    try_out = GraphRecorder.try_out

    def noting(recorder: GraphRecorder, step: Step) -> None:
        if isinstance(step, BeamStep):
            ahead.append(late.runner.decodes.num_ahead)
        try_out(recorder, step)

    model, params = tiny_model("opt", "cpu", torch.float32), BeamSearchParams(3, 60, ignore_eos=True)
    at_once = Rig(model, captured=False)
    late = Rig(model, captured=True, clock=FakeClock(LATE))
    monkeypatch.setattr(GraphRecorder, "try_out", noting)
    groups = []
    for rig in (at_once, late):
        groups.append(rig.core.groups.search(prompt_of(21), params))
        rig.drain()
    check_same(groups[1], groups[0])
    assert ahead == [0]  # tokens came before it was tried out, each chosen by the engine
    assert late.runner.decodes.num_ahead > 20


def test_of_steps_of_beams_the_last_ones_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pagedchat.runtime.graphs.decode.beam_store._MOST_KEPT", 2)
    rig = Rig(tiny_model("opt", "cpu", torch.float32), captured=True)
    beams = rig.runner.decodes.shelves[1]
    for width in (1, 3, 1, 9):
        rig.core.groups.search(prompt_of(9), BeamSearchParams(width, 6, ignore_eos=True))
        rig.drain()
    assert sorted(key.most for key in beams._steps) == [2, 32]
