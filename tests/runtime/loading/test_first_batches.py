"""Which batches are run before there are chats."""

from types import SimpleNamespace

import pytest
import torch

from pagedchat.config import EngineConfig
from pagedchat.engine.output import ModelRunnerOutput, SchedulerOutput
from pagedchat.runtime.graphs.captured_runner import CapturedRunner
from pagedchat.runtime.loading import captured_steps, first_graphs
from pagedchat.runtime.loading import first_batches as module
from pagedchat.runtime.loading.captured_steps import CapturedSteps
from pagedchat.runtime.loading.first_batches import KINDS, ROUNDS, FirstBatches
from pagedchat.runtime.loading.first_graphs import NUM_LIKELY
from pagedchat.runtime.loading.reports import Reports
from pagedchat.runtime.loading.self_check import SelfCheck
from pagedchat.runtime.step.sizes import StepSizes
from tests.ops.paged_case import DEVICES
from tests.runtime.graphs.case import BLOCK_SIZE, MAX_NUM_SEQS, MODEL_LEN, VOCAB_SIZE, make_runner, tiny_model

SIZES = StepSizes(2048, MAX_NUM_SEQS, MODEL_LEN)


class Noting:
    """Runs batches on another runner, and keeps them with what came back."""

    def __init__(self, num_blocks: int, device: str = "cpu") -> None:
        self.runner = make_runner(tiny_model("opt", device, torch.float32), num_blocks, captured=False)
        self.batches: list[SchedulerOutput] = []
        self.outputs: list[ModelRunnerOutput] = []

    def execute(self, batch: SchedulerOutput) -> ModelRunnerOutput:
        self.batches.append(batch)
        self.outputs.append(self.runner.execute(batch))
        return self.outputs[-1]

    def check(self) -> None:
        """Nothing can be wrong."""

    def first(self, sizes: StepSizes = SIZES) -> FirstBatches:
        return FirstBatches(self, self.runner.backend, sizes, VOCAB_SIZE)


def run_all(first: FirstBatches) -> None:
    while first.run_one():
        pass


@pytest.mark.parametrize("device", DEVICES)
def test_prompts_and_decodes_of_a_few_chats_draw_in_every_way(device: str) -> None:
    noting = Noting(100, device)
    run_all(noting.first())
    shapes = [(len(batch.scheduled), batch.scheduled[0].num_tokens) for batch in noting.batches]
    fitting = [(count, length) for count, length in ROUNDS if length < MODEL_LEN]
    assert len(fitting) == len(ROUNDS) - 1
    assert shapes == [shape for count, length in fitting for shape in ((count, length), (count, 1))]
    assert [part.sequence.sampling_params for part in noting.batches[3].scheduled] == [*KINDS]
    assert [len(output.token_ids) for output in noting.outputs] == [count for count, _ in shapes]
    for batch in noting.batches:
        blocks = [block for part in batch.scheduled for block in part.sequence.block_table]
        assert len({*blocks}) == len(blocks)
        assert all(
            len(part.sequence.block_table) * BLOCK_SIZE >= part.start + part.num_tokens for part in batch.scheduled
        )


def test_what_no_step_or_no_cache_has_room_for_is_left_out() -> None:
    few_blocks, few_tokens, few_chats = Noting(5), Noting(100), Noting(100)
    run_all(few_blocks.first())
    assert [len(batch.scheduled) for batch in few_blocks.batches] == [1, 1]
    run_all(few_tokens.first(StepSizes(64, MAX_NUM_SEQS, MODEL_LEN)))
    assert max(batch.num_tokens for batch in few_tokens.batches) == 64
    run_all(few_chats.first(StepSizes(2048, 2, MODEL_LEN)))
    assert {len(batch.scheduled) for batch in few_chats.batches} == {1, 2}


def test_nobody_waits_for_them_for_long(monkeypatch: pytest.MonkeyPatch) -> None:
    noting = Noting(100)
    first = noting.first()
    monkeypatch.setattr(module, "MOST_SECONDS", 0.0)
    first.run_some()
    assert noting.batches == []
    monkeypatch.setattr(module, "MOST_SECONDS", 1e9)
    assert first.run_one()
    first.run_some()
    assert len(noting.batches) == 2 * (len(ROUNDS) - 1)
    assert not first.run_one()


@pytest.mark.parametrize("device", DEVICES)
def test_captured_steps_run_them_too_and_begin_nothing_ahead(device: str) -> None:
    runner = make_runner(tiny_model("opt", device, torch.float32), 100, captured=True, max_num_tokens=256)
    first = FirstBatches(runner, runner.eager.backend, SIZES, VOCAB_SIZE)
    run_all(first)
    assert runner.prefills.num_replays > 4
    assert runner.decodes.num_replays == 2 * (len(ROUNDS) - 1) // 2
    assert runner.decodes.num_ahead == 0
    assert runner.decodes._ahead is None


class Build:
    """Stands for a `BuildAhead` that is done after so many looks."""

    def __init__(self, num_looks: int) -> None:
        self.num_looks = num_looks

    def wait(self, seconds: float | None = None) -> bool:
        self.num_looks -= 1
        return seconds is None or self.num_looks < 0


def test_while_kernels_are_waited_for_they_run_and_leave_nothing_wanted_but_long_steps_of_one_chat(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "MOST_SECONDS", 0.0)
    monkeypatch.setattr(captured_steps, "gpu", lambda _index: SimpleNamespace(name="a GPU"))
    monkeypatch.setattr(captured_steps, "keep_check", lambda *_, **__: None)
    monkeypatch.setattr(first_graphs, "capture_others", lambda *_, **__: lambda: False)
    for num_looks, num_batches in ((0, 0), (NUM_LIKELY + 1, 0), (NUM_LIKELY + 4, 3)):
        noting = Noting(100)
        check = SelfCheck("tiny", noting.runner, VOCAB_SIZE)
        device = SimpleNamespace(type="cuda", index=0)
        steps = CapturedSteps(EngineConfig(), SIZES, device, None, Reports(lambda _: None))  # type: ignore[arg-type]
        steps._builds = [Build(num_looks)]  # type: ignore[list-item]
        eager = noting.runner
        monkeypatch.setattr(captured_steps, "FirstBatches", lambda runner, *rest: FirstBatches(
            noting if runner is eager else runner, *rest  # noqa: B023 - called in this round
        ))  # fmt: skip
        attention = SimpleNamespace(name="cuda")
        running = steps.over(eager, check, attention, is_foreign=False)  # type: ignore[arg-type]
        runner = running.runner
        assert isinstance(runner, CapturedRunner)
        assert running.refusals == []
        assert len(noting.batches) == num_batches
        assert runner.prefills is not None
        wanted = [(bucket.num_seqs, bucket.context_len) for bucket, _ in runner.decodes.store.making]
        assert wanted == [(1, MODEL_LEN)] * 2
        assert [*runner.prefills.store.making] == [(256, 1, MODEL_LEN)]
        # Two each to check, one of a chat.
        assert (runner.decodes.num_replays, runner.prefills.num_replays) == (3, 3)
