"""Two processes on a CPU, over gloo, with a part of a model each: they say what one process says."""

import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import cast

import psutil
import pytest

from pagedchat import LLM, SamplingParams
from pagedchat.distributed.runner import DistributedRunner
from pagedchat.errors import DeviceError, InvalidValueError
from pagedchat.events import RankInfo
from pagedchat.outputs import RequestOutput
from tests.models.families.tiny_families import save_tiny

NUM_TOKENS = 16
SHARED = list(range(40, 60))
PROMPTS = [
    [5, 6, 7],
    [*SHARED, 8],
    [*SHARED, 9, 10, 11],
    [(7 * i) % 90 + 3 for i in range(40)],
    [(11 * i) % 90 + 3 for i in range(27)],
]
GREEDY = SamplingParams(temperature=0, max_tokens=NUM_TOKENS, ignore_eos=True, logprobs=3)
DRAWN = SamplingParams(
    temperature=1.0, top_p=0.9, seed=4, n=3, max_tokens=NUM_TOKENS, repetition_penalty=1.2, ignore_eos=True
)
SMALL = {"block_size": 4, "num_blocks": 24, "swap_space": "1MiB", "max_num_batched_tokens": 24}
"""The longest prompt with its reply needs 14 blocks, all five need 41: they take turns."""


def make(folder: Path, size: int, **arguments: object) -> LLM:
    return LLM(
        str(folder), device="cpu", dtype="float32", skip_tokenizer_init=True, tensor_parallel_size=size, **arguments
    )


def ask(llm: LLM, params: SamplingParams = GREEDY) -> list[RequestOutput]:
    return llm.generate([{"prompt_token_ids": prompt} for prompt in PROMPTS], params, use_tqdm=False)


def tokens(outputs: list[RequestOutput]) -> list[list[list[int]]]:
    return [[list(answer.token_ids) for answer in output.outputs] for output in outputs]


def logprobs(outputs: list[RequestOutput]) -> list[float]:
    """Of all tokens, and of the most likely ones in their place."""
    told = [each for output in outputs for answer in output.outputs for each in answer.logprobs or []]
    return [entry.logprob for of_token in told for entry in of_token.values()]


def pids_of(llm: LLM) -> list[int]:
    return runner_of(llm).workers.pids


def runner_of(llm: LLM) -> DistributedRunner:
    return cast(DistributedRunner, llm._engine._core.runner)


@pytest.fixture(scope="module", params=["opt", "gemma2"])
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


def test_each_rank_is_told_of(two: LLM) -> None:
    first, second = two.info.ranks
    assert first == second == RankInfo(first.device, 24 * two.info.block_bytes)
    assert first.device.startswith("CPU")
    assert two.info.device == f"2 × {first.device}"
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


def test_more_ranks_than_gpus_is_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(DeviceError, match=r"tensor_parallel_size is 2, but there is no GPU that torch can use\."):
        LLM(str(save_tiny(tmp_path, "opt")), tensor_parallel_size=2, skip_tokenizer_init=True)


@pytest.mark.parametrize("size", [0, -1, 65, 2.0, "2"])
def test_a_number_of_ranks_has_bounds(size: object) -> None:
    with pytest.raises(InvalidValueError, match="--tensor-parallel-size"):
        make(Path("anywhere"), size)  # type: ignore[arg-type]
