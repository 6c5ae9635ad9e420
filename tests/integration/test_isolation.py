"""One chat's prompt, settings or error never change another's reply: alone and in any mix, it is the same.

On a real model in float32. In the mix others come and go, fork, are cut back, fail and starve the pool, so that
blocks are evicted, swapped and found again while a reply is written.
"""

from contextlib import suppress
from pathlib import Path
from random import Random

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from pagedchat.config import CacheConfig, EngineConfig, ModelConfig, SchedulerConfig
from pagedchat.engine.core import EngineCore
from pagedchat.engine.limits import EngineLimits
from pagedchat.engine.output import ModelRunnerOutput, SchedulerOutput
from pagedchat.engine.sampling_params import SamplingParams
from pagedchat.errors import RequestError
from pagedchat.runtime.loading.build import load_model
from pagedchat.runtime.loading.loaded import LoadedModel
from tests.backends import Setup, kernels_on_cpu
from tests.helpers_models import make_checkpoint

SETUPS = [
    pytest.param((Setup("llama", "cpu", "torch"), "auto"), id="llama-cpu"),
    pytest.param((Setup("llama_64", "cpu", "torch"), "int8"), id="llama_64-cpu-int8"),
    pytest.param((Setup("llama_64", "cpu", "torch"), "fp8"), id="llama_64-cpu-fp8"),
    pytest.param((Setup("llama_64", "cuda", "cuda"), "auto"), id="llama_64-cuda", marks=pytest.mark.gpu),
    pytest.param((Setup("qwen3_80", "cuda", "cuda"), "auto"), id="qwen3_80-cuda", marks=pytest.mark.gpu),
]
"""On what, and what the cache holds."""
FEW_TOKENS = 96
"""A pool of so many slots: two or three of the longest chats fill it."""
SYSTEM = [(13 * i) % 90 + 3 for i in range(24)]

PARAMS = [
    SamplingParams(temperature=0, max_tokens=12, ignore_eos=True),
    SamplingParams(temperature=1.0, seed=1, max_tokens=12, ignore_eos=True),
    SamplingParams(temperature=0.7, top_p=0.9, top_k=20, min_p=0.01, seed=2, max_tokens=9),
    SamplingParams(temperature=2.0, repetition_penalty=1.3, seed=3, max_tokens=12, ignore_eos=True),
    SamplingParams(temperature=0, presence_penalty=1.5, frequency_penalty=-1.0, max_tokens=12, ignore_eos=True),
]
prompts = st.tuples(st.integers(0, 24), st.lists(st.integers(3, 92), min_size=1, max_size=12)).map(
    lambda made: tuple(SYSTEM[: made[0]] + made[1])
)
requests = st.tuples(prompts, st.integers(0, len(PARAMS) - 1))


class Failing:
    """The runner, which raises whenever one of some sequences is in the batch."""

    def __init__(self, loaded: LoadedModel) -> None:
        self._runner = loaded.runner
        self.culprits: set[int] = set()

    def execute(self, batch: SchedulerOutput) -> ModelRunnerOutput:
        if any(part.sequence.seq_id in self.culprits for part in batch.scheduled):
            self._runner.execute(batch)  # with everything done that others may notice
            raise ValueError("one of them is to blame")
        return self._runner.execute(batch)

    def check(self) -> None:
        self._runner.check()


class Alone:
    """What each request gets with the engine to itself."""

    def __init__(self, loaded: LoadedModel) -> None:
        self.loaded = loaded
        self._replies: dict[tuple[tuple[int, ...], int], list[int]] = {}

    def reply(self, prompt: tuple[int, ...], number: int) -> list[int]:
        if (prompt, number) not in self._replies:
            core = EngineCore(self.loaded.limits, self.loaded.runner)
            seq_id = core.open()
            core.extend(seq_id, list(prompt), PARAMS[number])
            while core.has_work:
                core.step()
            self._replies[prompt, number] = core.sequences[seq_id].output_token_ids
        return self._replies[prompt, number]


@pytest.fixture(scope="module", params=SETUPS)
def alone(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Alone:
    setup, kind = request.param
    checkpoint: Path = make_checkpoint(tmp_path_factory.mktemp(setup.family), setup.family)
    config = EngineConfig(
        model=ModelConfig(
            model=str(checkpoint), device=setup.device, dtype="float32", skip_tokenizer_init=True,  # type: ignore[arg-type]
            attention_backend=setup.backend,  # type: ignore[arg-type]
        ),
        cache=CacheConfig(
            block_size=setup.block_size, num_blocks=FEW_TOKENS // setup.block_size, swap_space=1 << 18,
            kv_cache_dtype=kind,
        ),
        scheduler=SchedulerConfig(max_num_batched_tokens=40),
    )  # fmt: skip
    with kernels_on_cpu():
        return Alone(load_model(config, lambda _: None))


@given(st.lists(requests, min_size=2, max_size=6), st.sampled_from(["recompute", "swap"]), st.integers(0, 1 << 30))
@settings(
    max_examples=25, deadline=None, derandomize=True, phases=[Phase.explicit, Phase.generate],
    suppress_health_check=list(HealthCheck),
)  # fmt: skip
def test_a_reply_is_the_same_alone_and_in_any_mix(
    alone: Alone, asked: list[tuple[tuple[int, ...], int]], mode: str, seed: int
) -> None:
    mix = Mix(alone.loaded, mode, seed)
    replies = mix.run(asked)
    assert [list(reply) for reply in replies] == [alone.reply(*request) for request in asked]


class Mix:
    """The same requests beside others that do what they can."""

    def __init__(self, loaded: LoadedModel, mode: str, seed: int) -> None:
        self._random = Random(seed)
        limits: EngineLimits = loaded.limits
        self._runner = Failing(loaded)
        changed = {name: getattr(limits, name) for name in EngineLimits.__slots__}
        self._core = EngineCore(EngineLimits(**{**changed, "preemption_mode": mode}), self._runner)
        self._others: list[int] = []

    def run(self, asked: list[tuple[tuple[int, ...], int]]) -> list[list[int]]:
        core, waiting, seq_ids = self._core, list(asked), []
        while waiting or core.has_work:
            if waiting and self._random.random() < 0.3:
                prompt, number = waiting.pop(0)
                seq_ids.append(core.open())
                core.extend(seq_ids[-1], list(prompt), PARAMS[number])
            if len(seq_ids) < len(asked) or self._random.random() < 0.5:
                self._disturb(seq_ids)
            if core.has_work:
                core.step()
            else:
                core.controls.set_limit(None)
        core.check_integrity()
        return [core.sequences[seq_id].output_token_ids for seq_id in seq_ids]

    def _disturb(self, seq_ids: list[int]) -> None:
        """By anybody but those whose replies are compared."""
        core, choose = self._core, self._random
        other = choose.choice(self._others) if self._others else 0
        match choose.randrange(8):
            case 0:
                self._others.append(core.open())
                self._ask(self._others[-1])
            case 1 if seq_ids and len(self._others) < 6:
                self._others.append(core.fork(choose.choice(seq_ids)))
            case 2 if other:
                core.rewind(other, choose.randint(0, len(core.sequences[other])))
            case 3 if other:
                self._runner.culprits.add(other)
            case 4 if other:
                self._others.remove(other)
                core.close(other)
            case 5:
                core.controls.flush()
            case 6:
                core.controls.set_limit(choose.choice([None, core.limits.num_blocks * 2 // 3]))
            case 7 if other:
                self._ask(other)

    def _ask(self, seq_id: int) -> None:
        prompt = [*SYSTEM[: self._random.randint(0, 24)], self._random.randrange(3, 92)]
        with suppress(RequestError):  # it is generating, or has too many tokens: its own affair
            self._core.extend(seq_id, prompt, self._random.choice(PARAMS))
