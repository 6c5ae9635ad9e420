"""What a model took is given back: no cycle holds it, and the allocators keep nothing."""

import fcntl
import gc
import json
import subprocess
import sys
import tempfile
import weakref
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from pagedchat import LLM, SamplingParams
from pagedchat.bench.random_checkpoint import OPT_125M, write_checkpoint
from pagedchat.config import ModelImplementation
from pagedchat.errors import EngineStateError
from pagedchat.runtime.graphs.spare_time import SpareTime
from pagedchat.runtime.step.sizes import StepSizes
from tests.helpers_models import make_checkpoint
from tests.runtime.graphs.case import MAX_NUM_SEQS, MODEL_LEN, make_runner, tiny_model

DRAWN = SamplingParams(max_tokens=8, ignore_eos=True, seed=1)
GREEDY = SamplingParams(temperature=0, max_tokens=4, ignore_eos=True)


@pytest.fixture
def no_collections() -> Iterator[None]:
    """Only what nobody refers to any more is freed."""
    gc.collect()
    gc.disable()
    yield
    gc.enable()


def make(folder: Path, **arguments: Any) -> LLM:
    make_checkpoint(folder)
    return LLM(str(folder), device="cpu", num_blocks=32, skip_tokenizer_init=True, **arguments)


def parts_of(runner: Any) -> "dict[str, weakref.ref[Any]]":
    eager = getattr(runner, "eager", runner)
    backend = getattr(eager.backend, "_backend", eager.backend)
    parts = {"runner": runner, "eager": eager, "model": eager.model, "backend": backend}
    pool = backend.cache if hasattr(backend, "cache") else next(iter(tensors_of(backend)))
    return {
        name: weakref.ref(part)
        for name, part in {**parts, "weights": next(eager.model.parameters()), "pool": pool}.items()
    }


def tensors_of(backend: Any) -> Iterator[torch.Tensor]:
    for value in vars(backend).values():
        for one in value if isinstance(value, list | tuple) else [value]:
            if isinstance(one, torch.Tensor):
                yield one


def left(parts: "dict[str, weakref.ref[Any]]") -> list[str]:
    return [name for name, part in parts.items() if part() is not None]


# --- an LLM on a CPU ----------------------------------------------------------------------------------


@pytest.mark.usefixtures("no_collections")
@pytest.mark.parametrize("implementation", ["native", "transformers"])
@pytest.mark.parametrize("how", ["close", "with", "del"])
def test_weights_and_pool_are_gone(how: str, implementation: ModelImplementation, tmp_path: Path) -> None:
    llm = make(tmp_path, model_implementation=implementation)
    llm.generate({"prompt_token_ids": [5, 6, 7]}, GREEDY)
    parts = parts_of(llm._engine._core.runner)
    if how == "close":
        llm.close()
    elif how == "with":
        with llm:
            pass
    else:
        del llm
    assert left(parts) == []


def test_what_is_part_of_a_cycle_is_searched_for(tmp_path: Path) -> None:
    llm = make(tmp_path)
    runner = llm._engine._core.runner
    runner.itself = runner  # type: ignore[attr-defined]
    parts = parts_of(runner)
    del runner
    gc.freeze()  # as after the first loading
    llm.close()
    assert left(parts) == []


def test_a_closed_one_refuses_every_call_but_another_close(tmp_path: Path) -> None:
    llm = make(tmp_path)
    stream = llm.stream({"prompt_token_ids": [5, 6, 7]}, GREEDY)
    next(stream)
    engine = llm._engine
    llm.close()
    llm.close()
    engine.close()
    for call in (
        lambda: llm.generate([]),
        lambda: llm.generate({"prompt_token_ids": [5]}),
        lambda: llm.chat([]),
        lambda: llm.stream({"prompt_token_ids": [5]}),
        lambda: next(stream),
        llm.stats,
        lambda: engine.add_request("a", {"prompt_token_ids": [5]}),
        engine.step,
    ):
        with pytest.raises(EngineStateError, match="This engine is closed"):
            call()
    engine.abort_request("a")
    assert not engine.has_unfinished_requests()


# --- captured steps -----------------------------------------------------------------------------------


@pytest.mark.usefixtures("no_collections")
@pytest.mark.parametrize("family", ["opt", "llama", "gelu"])
def test_captured_steps_are_gone_with_their_runner(family: str) -> None:
    model = tiny_model(family, "cpu", torch.float32)
    runner = make_runner(model, 40, captured=True, max_num_tokens=256, num_host_blocks=4)
    sizes = StepSizes(256, MAX_NUM_SEQS, MODEL_LEN)
    spare = SpareTime(runner.decodes, runner.prepare_prefill, sizes, runner.make_wanted, lambda: 2, 1)
    spare()
    while not runner.prefills.store._steps:
        runner.prepare_prefill()
    parts = {**parts_of(runner), "steps": weakref.ref(runner.decodes), "spare": weakref.ref(spare)}
    del model, spare, runner
    assert left(parts) == []


# --- on a GPU -----------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Of OPT-125m's shape, so that there is something to be given back."""
    folder = tmp_path_factory.mktemp("opt")
    write_checkpoint(folder, OPT_125M, torch.float16, torch.device("cpu"))
    return folder


def load(checkpoint: Path, **arguments: Any) -> LLM:
    return LLM(str(checkpoint), skip_tokenizer_init=True, **arguments)


@pytest.fixture
def one_at_a_time() -> Iterator[None]:
    """Workers that run side by side wait here for each other."""
    with Path(tempfile.gettempdir(), "pagedchat-one-gpu-test.lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


THREE_ENGINES = """
import json, sys
import torch
from pagedchat import LLM, SamplingParams

checkpoint, how, implementation = sys.argv[1:]
greedy = SamplingParams(temperature=0, max_tokens=6)
for _ in range(3):
    llm = LLM(
        checkpoint, skip_tokenizer_init=True, model_implementation=implementation, preemption_mode="swap",
        kv_cache_memory="2GiB",
    )
    llm.generate([{"prompt_token_ids": [5, 6, 7 + number]} for number in range(9)], greedy, use_tqdm=False)
    *_, last = llm.stream({"prompt_token_ids": [5] * 200}, SamplingParams(seed=1, max_tokens=6))
    held = torch.cuda.memory_allocated()
    if how == "close":
        llm.close()
    del llm
    print(json.dumps([last.finished, held, torch.cuda.memory_allocated(), torch.cuda.memory_reserved()]))
"""


@pytest.mark.gpu
@pytest.mark.parametrize("implementation", ["native", "transformers"])
@pytest.mark.parametrize("how", ["close", "del"])
@pytest.mark.usefixtures("one_at_a_time")
def test_a_gpu_gets_everything_back(how: str, implementation: str, checkpoint: Path) -> None:
    """Three engines one after the other, in a process that has nothing else."""
    done = subprocess.run(
        [sys.executable, "-c", THREE_ENGINES, str(checkpoint), how, implementation],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    told = [json.loads(line) for line in done.stdout.splitlines()]
    assert len(told) == 3
    for finished, held, allocated, reserved in told:
        assert finished
        assert held > 1 << 30
        assert allocated < 8 << 20
        assert reserved < 32 << 20


@pytest.mark.gpu
def test_pinned_memory_is_given_back(checkpoint: Path) -> None:
    llm = load(checkpoint, num_blocks=64)
    llm.generate({"prompt_token_ids": [5, 6, 7]}, GREEDY)
    llm.close()
    stats = torch.cuda.host_memory_stats()
    assert stats["allocated_bytes.current"] < 1 << 20
