"""What no captured step serves yet goes through smaller ones that are there, where that is quicker."""

import pytest
import torch

from pagedchat.engine.core import EngineCore
from pagedchat.engine.output import ModelRunnerOutput, SchedulerOutput
from pagedchat.engine.sampling_params import SamplingParams
from pagedchat.runtime.graphs.captured_runner import CapturedRunner
from pagedchat.runtime.graphs.decode.buckets import Bucket
from pagedchat.runtime.graphs.decode.decode_steps import DecodeSteps
from tests.fakes import FakeClock
from tests.ops.paged_case import DEVICES
from tests.runtime.graphs.case import LATE, VOCAB_SIZE, make_engine, make_runner, tiny_model

KINDS = (
    SamplingParams(temperature=0, max_tokens=None, logprobs=2),
    SamplingParams(temperature=1.0, seed=1, max_tokens=None),
    SamplingParams(temperature=0.7, top_p=0.9, repetition_penalty=1.2, seed=2, max_tokens=None),
    SamplingParams(temperature=0, max_tokens=None),
)


class Rig:
    """An engine whose runner has steps of one chat and passes of 64 tokens, and makes no others."""

    def __init__(self, device: str, monkeypatch: pytest.MonkeyPatch, *, captured: bool = True) -> None:
        self.clock = FakeClock(LATE)
        model = tiny_model("opt", device, torch.float32)
        self.runner: CapturedRunner = make_runner(
            model, 200, captured=captured, max_num_tokens=256, clock=self.clock
        )
        self.core: EngineCore = make_engine(self.runner)
        self.eager_sizes: list[int] = []
        if not captured:
            return
        assert self.runner.decodes.prepare(1, 1)
        assert self.runner.prefills is not None
        assert self.runner.prefills.prepare(64)
        monkeypatch.setattr(self.runner._workshop, "is_due", lambda _waiting: False)
        execute = self.runner.eager.execute

        def noting(batch: SchedulerOutput) -> ModelRunnerOutput:
            self.eager_sizes.append(len(batch.scheduled))
            return execute(batch)

        monkeypatch.setattr(self.runner.eager, "execute", noting)

    def ask(self, salt: int, length: int, params: SamplingParams) -> None:
        tokens = [(7 * i + 31 * salt) % VOCAB_SIZE for i in range(length)]
        self.core.extend(self.core.open(), tokens, params)

    def run(self, num_steps: int) -> None:
        for _ in range(num_steps):
            self.core.step()


@pytest.mark.parametrize("device", DEVICES)
def test_chats_and_prompts_are_served_a_piece_at_a_time_with_the_same_tokens(
    device: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    rigs = [Rig(device, monkeypatch, captured=False), Rig(device, monkeypatch)]
    for rig in rigs:
        for salt, params in enumerate(KINDS):
            rig.ask(salt, 20 + 50 * salt, params)
            rig.run(3)
        rig.run(20)
    plain, pieces = ([*rig.core.sequences.values()] for rig in rigs)
    assert [sequence.token_ids for sequence in plain] == [sequence.token_ids for sequence in pieces]
    assert len(pieces[0].logprobs) == len(pieces[0].token_ids) - 20
    assert [told.token_ids for told in plain[0].logprobs] == [told.token_ids for told in pieces[0].logprobs]
    assert rigs[1].eager_sizes == []


def test_only_the_batch_s_own_step_is_noted(monkeypatch: pytest.MonkeyPatch) -> None:
    rig = Rig("cpu", monkeypatch)
    for salt in range(4):
        rig.ask(salt, 9, KINDS[3])
    rig.run(3)
    assert [*rig.runner.decodes.store.making] == [(Bucket(4, 256), "greedy")]


@pytest.mark.parametrize(("piece_seconds", "num_eager"), [(0.0005, 0), (0.002, 9)])
def test_pieces_that_take_longer_than_a_step_without_a_graph_are_left(
    piece_seconds: float, num_eager: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first batch of four tells how long they take."""
    rig = Rig("cpu", monkeypatch)
    for salt in range(4):
        rig.ask(salt, 9, KINDS[3])
    rig.run(1)
    finish = DecodeSteps.finish

    def slow(decodes: DecodeSteps, begun: object) -> ModelRunnerOutput:
        rig.clock.advance(piece_seconds)
        return finish(decodes, begun)  # type: ignore[arg-type]

    monkeypatch.setattr(DecodeSteps, "finish", slow)
    rig.runner._in_pieces.note_eager(0.004)  # type: ignore[union-attr]
    rig.eager_sizes.clear()
    rig.run(10)
    assert len(rig.eager_sizes) == num_eager


def test_prompts_whose_tokens_are_told_of_go_without_a_graph(monkeypatch: pytest.MonkeyPatch) -> None:
    rig = Rig("cpu", monkeypatch)
    rig.ask(1, 90, SamplingParams(temperature=0, prompt_logprobs=1, max_tokens=4))
    rig.run(4)
    assert rig.eager_sizes == [1]
