"""Two processes on a CPU, over gloo, with a part of a model each: they say what one process says."""

import os
import signal
import threading
import time
import weakref
from collections.abc import Iterator
from pathlib import Path
from typing import cast

import psutil
import pytest

from pagedchat import LLM, SamplingParams
from pagedchat.config import CacheConfig, EngineConfig, ModelConfig
from pagedchat.distributed.loading import load_model
from pagedchat.distributed.runner import DistributedRunner
from pagedchat.engine.groups.beam_params import BeamSearchParams
from pagedchat.errors import DeviceError, InvalidValueError
from pagedchat.events import RankInfo
from tests.distributed.asking import DRAWN, PROMPTS, ask, logprobs, make, tokens
from tests.models.families.tiny_families import save_tiny

SMALL = {"block_size": 4, "num_blocks": 24, "swap_space": "1MiB", "max_num_batched_tokens": 24}
"""The longest prompt with its reply needs 14 blocks, all five need 41: they take turns."""


def pids_of(llm: LLM) -> list[int]:
    return runner_of(llm).workers.pids


def runner_of(llm: LLM) -> DistributedRunner:
    return cast(DistributedRunner, llm._engine._core.runner)


@pytest.fixture(scope="module", params=["opt", "gemma2", "gpt_oss"])
def folder(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_tiny(tmp_path_factory.mktemp(request.param), request.param)


@pytest.fixture(scope="module")
def one(folder: Path) -> Iterator[LLM]:
    with make(folder, 1) as llm:
        yield llm


@pytest.fixture(scope="module")
def two(folder: Path) -> Iterator[LLM]:
    """With so little memory that sequences are swapped out, prompts cut into chunks and decodes put off."""
    with make(folder, 2, preemption_mode="swap", **SMALL) as llm:
        yield llm


def test_all_ranks_are_asked_for_spare_work(tmp_path: Path) -> None:
    model = ModelConfig(
        model=str(save_tiny(tmp_path, "opt")), device="cpu", tensor_parallel_size=2, skip_tokenizer_init=True
    )
    loaded = load_model(EngineConfig(model=model, cache=CacheConfig(num_blocks=8)))
    assert isinstance(loaded.runner, DistributedRunner)
    assert not loaded.prepare_more()  # on a CPU there is none
    assert loaded.runner.workers.num_told == 1
    assert loaded.runner.workers.wait_done(10.0)
    loaded.release(lambda: None)


def test_two_ranks_say_what_one_process_says(one: LLM, two: LLM) -> None:
    expected, found = ask(one), ask(two)
    assert tokens(found) == tokens(expected)
    assert logprobs(found) == pytest.approx(logprobs(expected), abs=1e-5)
    stats = two.stats()
    assert stats.swaps_out > 0
    # Once more, from what is left in the cache.
    assert tokens(ask(two)) == tokens(expected)
    assert two.stats().prefix_hits > stats.prefix_hits


def test_drawn_answers_that_share_a_prompt(one: LLM, two: LLM) -> None:
    assert tokens(ask(two, DRAWN)) == tokens(ask(one, DRAWN))
    assert two.stats().copies > 0


def test_beams_are_those_of_one_process(one: LLM, two: LLM) -> None:
    prompts = [{"prompt_token_ids": PROMPTS[1]}]
    params = BeamSearchParams(beam_width=3, max_tokens=6, ignore_eos=True)
    expected, found = (llm.beam_search(prompts, params)[0].sequences for llm in (one, two))
    assert [each.tokens for each in found] == [each.tokens for each in expected]
    assert [each.cum_logprob for each in found] == pytest.approx([each.cum_logprob for each in expected], abs=1e-4)


def test_likelihoods_of_prompts_are_those_of_one_process(one: LLM, two: LLM) -> None:
    params = SamplingParams(temperature=0, max_tokens=1, prompt_logprobs=2)

    def told(llm: LLM) -> list[float]:
        of_tokens = [each for output in ask(llm, params) for each in output.prompt_logprobs or [] if each]
        return [entry.logprob for each in of_tokens for entry in each.values()]

    assert told(two) == pytest.approx(told(one), abs=1e-4)


def test_each_rank_is_told_of(two: LLM) -> None:
    first, second = two.info.ranks
    assert first == second == RankInfo(first.device, 24 * two.info.block_bytes)
    assert first.device.startswith("CPU")
    assert two.info.device == f"2 × {first.device}"
    ask(two)
    assert all(seconds > 0 for seconds in runner_of(two).workers.step_seconds)


def test_a_rank_that_is_killed_ends_the_engine_with_its_name(tmp_path: Path) -> None:
    with make(save_tiny(tmp_path, "llama"), 2, num_blocks=40) as llm:
        [pid] = pids_of(llm)
        os.kill(pid, signal.SIGKILL)
        with pytest.raises(DeviceError, match=rf"Rank 1 \(process {pid}, on CPU, .*\) was killed \(SIGKILL\)"):
            ask(llm)
        with pytest.raises(DeviceError, match="Rank 1"):
            ask(llm)
    assert not psutil.pid_exists(pid)


class _Sent(threading.Thread):
    """Sends signals to the other rank of an engine that is being loaded, as soon as there is one."""

    def __init__(self, *signals: int, pause: float = 0.0) -> None:
        super().__init__(daemon=True)
        self._others = _rank_pids()
        self._signals, self._pause = signals, pause
        self.start()

    def run(self) -> None:
        ended = threading.Event()
        while not (found := _rank_pids() - self._others):
            ended.wait(0.01)
        for number in self._signals:
            os.kill(min(found), number)
            ended.wait(self._pause)


def _rank_pids() -> set[int]:
    """Of all engines here."""
    return {each.pid for each in psutil.Process().children() if _is_rank(each)}


def _is_rank(process: psutil.Process) -> bool:
    try:
        return "pagedchat.distributed.worker" in process.cmdline()
    except psutil.Error:
        return False


def test_a_rank_that_is_killed_while_it_starts_is_named_at_once(tmp_path: Path) -> None:
    folder = save_tiny(tmp_path, "llama")
    sent, began = _Sent(signal.SIGKILL), time.monotonic()
    with pytest.raises(DeviceError, match=r"Rank 1 \(process \d+\) was killed \(SIGKILL\)"):
        make(folder, 2, num_blocks=8)
    sent.join()
    assert time.monotonic() - began < 20


def test_a_rank_that_starts_late_is_waited_for(tmp_path: Path) -> None:
    folder = save_tiny(tmp_path, "llama")
    sent = _Sent(signal.SIGSTOP, signal.SIGCONT, pause=1.0)
    with make(folder, 2, num_blocks=8) as llm:
        sent.join()
        assert len(llm.info.ranks) == 2


def test_more_ranks_than_gpus_is_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(DeviceError, match=r"tensor_parallel_size is 2, but there is no GPU that torch can use\."):
        LLM(str(save_tiny(tmp_path, "opt")), tensor_parallel_size=2, skip_tokenizer_init=True)


@pytest.mark.parametrize("size", [0, -1, 65, 2.0, "2"])
def test_a_number_of_ranks_has_bounds(size: object) -> None:
    with pytest.raises(InvalidValueError, match="--tensor-parallel-size"):
        make(Path("anywhere"), size)  # type: ignore[arg-type]


def test_what_a_lost_rank_leaves_is_given_back(tmp_path: Path) -> None:
    """Captured steps that somebody still has would keep NCCL from its end."""
    with make(save_tiny(tmp_path, "llama"), 2, num_blocks=40) as llm:
        own = weakref.ref(runner_of(llm).own)
        ask(llm)
        os.kill(pids_of(llm)[0], signal.SIGKILL)
        for _ in range(2):
            with pytest.raises(DeviceError, match="Rank 1"):
                ask(llm)
    assert own() is None
