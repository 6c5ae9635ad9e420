import logging
from pathlib import Path

import pytest
import torch

from pagedchat.config import CacheConfig, EngineConfig, ModelConfig, SchedulerConfig
from pagedchat.runtime.graphs.captured_runner import CapturedRunner
from pagedchat.runtime.graphs.spare_time import SpareTime, in_order
from pagedchat.runtime.loading.build import load_model
from pagedchat.runtime.step.sizes import StepSizes
from tests.helpers_models import make_checkpoint
from tests.runtime.drive import Driver


class Compiling:
    """Kernels that are there at the third look."""

    def __init__(self) -> None:
        self.looks = 0

    def wait(self, seconds: float) -> bool:
        assert 0 < seconds < 0.1
        self.looks += 1
        return self.looks > 2


class Steps:
    """Stands for `DecodeSteps`: notes what is captured."""

    def __init__(self, compiles: bool = False) -> None:
        self.captured: list[tuple[int, int]] = []
        self.compiles = compiles

    def build_ahead(self, *_bucket: int) -> Compiling | None:
        return Compiling() if self.compiles else None

    def prepare(self, num_seqs: int, context_len: int) -> bool:
        self.captured.append((num_seqs, context_len))
        return True


def sizes(num_seqs: int, model_len: int) -> StepSizes:
    return StepSizes(2048, num_seqs, model_len)


def prompts(count: int):
    left = [True] * count
    return lambda: bool(left) and left.pop()


def test_few_chats_with_short_texts_come_first() -> None:
    order = in_order(sizes(24, 4096))
    assert order[:3] == [(1, 384), (2, 384), (1, 1024)]
    likely = [(size, length) for size in (1, 2) for length in (384, 1024, 2048)]
    likely += [(size, length) for size in (4, 8) for length in (256, 512, 1024, 2048)]
    assert sorted(order[: len(likely)]) == likely
    assert order[len(likely)] == (1, 4096)
    assert order[-1] == (24, 4096)
    assert len(set(order)) == len(order) == 2 * 4 + 4 * 5


def test_one_a_call_and_prompts_in_turn_after_the_likely_ones(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    steps = Steps()
    more = SpareTime(steps, prompts(2), sizes(16, 512), lambda: 100, 10)
    counts = []
    while more():
        counts.append(len(steps.captured))
    assert counts == [*range(1, 9), 9, 9, 10, 10]
    assert steps.captured == in_order(sizes(16, 512))
    assert "Captured 12 kinds of steps in spare time" in caplog.text
    assert "all there are" in caplog.text


def test_nobody_waits_long_for_kernels_that_are_being_compiled(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    steps = Steps(compiles=True)
    more = SpareTime(steps, prompts(0), sizes(2, 384), lambda: 100, 10)
    counts = []
    while more():
        counts.append(len(steps.captured))
    assert counts == [0, 0, 1, 1, 1, 2]
    assert "Captured 2 kinds of steps" in caplog.text


def test_stops_when_its_memory_is_taken(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    steps = Steps()
    more = SpareTime(steps, prompts(0), sizes(16, 512), lambda: 100 - 4 * len(steps.captured), 10)
    assert [more() for _ in range(4)] == [True, True, True, False]
    assert "as many as there is room for" in caplog.text


@pytest.mark.gpu
def test_replies_stay_the_same_while_graphs_are_added(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # Others on the GPU take and give back memory meanwhile, which would end this early.
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda *_: (32 << 30, 64 << 30))
    model = ModelConfig(model=str(make_checkpoint(tmp_path, "opt_64")), skip_tokenizer_init=True, device="cuda")
    config = EngineConfig(
        model=model, cache=CacheConfig(num_blocks=256), scheduler=SchedulerConfig(max_num_seqs=24)
    )
    loaded = load_model(config)
    runner = loaded.runner
    assert isinstance(runner, CapturedRunner)
    reserved = torch.cuda.memory_reserved()
    replies, count = [], 0
    while loaded.prepare_more():
        count += 1
        driver = Driver(runner)
        for i in range(3):
            driver.add([5 + i, 9, 11 + i])
        replies.append(driver.run(6))
    assert count > len(in_order(sizes(24, 128)))
    assert all(reply == replies[0] for reply in replies)
    assert torch.cuda.memory_reserved() - reserved < 1 << 30
