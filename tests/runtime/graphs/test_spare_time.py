import logging
from itertools import pairwise
from pathlib import Path

import pytest
import torch

from pagedchat.config import CacheConfig, EngineConfig, ModelConfig, SchedulerConfig
from pagedchat.ops.ranks.company import agree_of
from pagedchat.runtime.graphs.captured_runner import CapturedRunner
from pagedchat.runtime.graphs.spare_time import SpareTime, in_order
from pagedchat.runtime.loading.build import load_model
from pagedchat.runtime.step.sizes import StepSizes
from tests.helpers_models import make_checkpoint
from tests.rank_threads import RankThread, RankThreads
from tests.runtime.drive import Driver


class Compiling:
    """Kernels that are there at the third look, or a later one."""

    def __init__(self, most_looks: int = 2) -> None:
        self.looks, self.most_looks = 0, most_looks

    def wait(self, seconds: float) -> bool:
        assert 0 < seconds < 0.1
        self.looks += 1
        return self.looks > self.most_looks


class Steps:
    """Stands for `DecodeSteps`: notes what is captured."""

    def __init__(self, compiles: bool = False, looks: int = 2) -> None:
        self.looks = looks
        self.there: list[bool] = []
        """Whether the kernels of what was captured were there."""
        self.kernels: dict[tuple[int, ...], Compiling] = {}
        self.captured: list[tuple[int, int]] = []
        self.before_prompts: list[tuple[int, int]] = []
        self.looked_for: list[tuple[int, ...]] = []
        self.compiles = compiles

    def build_ahead(self, *bucket: int, quietly: bool) -> Compiling | None:
        assert quietly
        self.looked_for.append(bucket)
        if self.compiles:
            self.kernels[bucket] = Compiling(self.looks)
        return self.kernels.get(bucket)

    def prepare(self, num_seqs: int, context_len: int) -> bool:
        self.captured.append((num_seqs, context_len))
        kernels = self.kernels.get((num_seqs, context_len))
        self.there.append(kernels is None or kernels.looks > kernels.most_looks)
        return True


def sizes(num_seqs: int, model_len: int) -> StepSizes:
    return StepSizes(2048, num_seqs, model_len)


def prompts(count: int):
    left = [1] * count
    return lambda: left.pop() if left else None


def nothing_wanted() -> bool:
    return False


def test_few_chats_with_short_texts_come_first() -> None:
    order = in_order(sizes(24, 4096))
    assert order[:3] == [(1, 384), (2, 384), (1, 1024)]
    likely = [(size, length) for size in (1, 2) for length in (384, 1024, 2048)]
    likely += [(size, length) for size in (4, 8) for length in (256, 512, 1024, 2048)]
    assert sorted(order[: len(likely)]) == likely
    assert order[len(likely)] == (1, 4096)
    assert order[-1] == (24, 4096)
    assert len(set(order)) == len(order) == 2 * 4 + 4 * 5


def test_where_there_will_be_drafts_steps_that_verify_them_come_with_the_others() -> None:
    order = in_order(sizes(24, 512), speculates=True)
    verify = [bucket for bucket in order if len(bucket) > 2]
    assert verify == [(8, 256, True), (8, 512, True), (16, 256, True), (16, 512, True)]
    assert [bucket for bucket in order if len(bucket) == 2] == in_order(sizes(24, 512))
    assert order.index((16, 512, True)) < order.index((16, 256))


def test_one_a_call_and_prompts_in_turn_after_the_likely_ones(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    steps = Steps()
    left = prompts(2)

    def prepare_prompts() -> int | None:
        steps.before_prompts.append(steps.captured[-1])
        return left()

    more = SpareTime(steps, prepare_prompts, sizes(16, 512), nothing_wanted, lambda: 100, 10)
    counts = [0]
    while more():
        counts.append(len(steps.captured))
    changes = [after - before for before, after in pairwise(counts)]
    assert set(changes) == {0, 1}  # one a call
    assert steps.captured == in_order(sizes(16, 512))
    assert [steps.captured.index(bucket) for bucket in steps.before_prompts] == [8, 9, 9]
    assert "Captured 12 kinds of steps in spare time" in caplog.text
    assert "all there are" in caplog.text


def test_nobody_waits_long_for_kernels_that_are_being_compiled(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    steps = Steps(compiles=True)
    more = SpareTime(steps, prompts(0), sizes(2, 384), nothing_wanted, lambda: 100, 10)
    counts = []
    while more():
        counts.append(len(steps.captured))
    assert counts == [0, 0, 0, 0, 1, 1, 1, 2]  # two to look for them, two to wait for each
    assert "Captured 2 kinds of steps" in caplog.text


def test_kernels_of_the_next_few_are_built_meanwhile() -> None:
    steps = Steps(compiles=True)
    more = SpareTime(steps, prompts(0), sizes(16, 512), nothing_wanted, lambda: 100, 10)
    ahead = []
    while more():
        ahead.append(len(steps.looked_for) - len(steps.captured))
    assert max(ahead) == 4
    assert steps.looked_for == steps.captured


def test_what_was_wanted_comes_first() -> None:
    steps, wanted = Steps(), [True, True, False]
    more = SpareTime(steps, prompts(0), sizes(1, 384), lambda: bool(wanted) and wanted.pop(0), lambda: 100, 10)
    captured = []
    while more():
        captured.append(len(steps.captured))
    assert captured == [0, 0, 0, 1]


def test_stops_when_its_memory_is_taken(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    steps = Steps()
    more = SpareTime(steps, prompts(0), sizes(16, 512), nothing_wanted, lambda: 100 - 4 * len(steps.captured), 10)
    while more():
        pass
    assert len(steps.captured) == 3
    assert "as many as there is room for" in caplog.text


def test_ranks_capture_the_same_in_the_same_calls_and_not_before_all_have_the_kernels() -> None:
    def prepare(ranks: RankThread) -> list[int]:
        steps = Steps(compiles=True, looks=(2, 9, 0)[ranks.rank])
        more = SpareTime(steps, prompts(2), sizes(16, 512), nothing_wanted, lambda: 100, 10, agree=agree_of(ranks))
        counts = []
        while more():
            counts.append(len(steps.captured))
        assert steps.captured == in_order(sizes(16, 512))
        assert all(steps.there)
        return counts

    first, *others = RankThreads(3).run(prepare)
    assert others == [first, first]
    assert len(first) > 9 * 12  # each waits for the slowest


def test_ranks_stop_where_one_has_no_more_room() -> None:
    def prepare(ranks: RankThread) -> int:
        steps = Steps()
        free = (lambda: 100, lambda: 100 - 4 * len(steps.captured))[ranks.rank]
        more = SpareTime(steps, prompts(0), sizes(16, 512), nothing_wanted, free, 10, agree=agree_of(ranks))
        while more():
            pass
        return len(steps.captured)

    assert RankThreads(2).run(prepare) == [3, 3]


@pytest.mark.gpu
def test_replies_stay_the_same_while_graphs_are_added(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # Others on the GPU take and give back memory meanwhile, which would end this early.
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda *_: (32 << 30, 64 << 30))
    model = ModelConfig(
        model=str(make_checkpoint(tmp_path, "opt_64")), skip_tokenizer_init=True, device="cuda", dtype="float32"
    )
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
