"""With batch_invariant a reply is the same bit for bit, alone and in any company: texts through the whole engine,
and logits on every road that a token can take.
"""

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from random import Random
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from pagedchat.config import CacheConfig, EngineConfig, ModelConfig, SchedulerConfig
from pagedchat.engine.core import EngineCore
from pagedchat.engine.limits import EngineLimits
from pagedchat.engine.output import ScheduledSequence
from pagedchat.engine.sampling_params import SamplingParams
from pagedchat.layers.arithmetic import InvariantArithmetic, use_arithmetic
from pagedchat.models.native_model import NativeModel
from pagedchat.runtime.attention.backend import AttentionBackend, CacheShape
from pagedchat.runtime.attention.torch_backend import TorchAttention
from pagedchat.runtime.graphs.captured_runner import CapturedRunner
from pagedchat.runtime.loading.build import load_model
from pagedchat.runtime.step.batch_inputs import flatten
from pagedchat.runtime.step.model_runner import NativeModelRunner
from tests.helpers_models import KERNEL_MIXTURES, make_checkpoint
from tests.integration.test_isolation import FEW_TOKENS, Alone, Mix, requests
from tests.runtime.drive import eager_of
from tests.runtime.graphs.case import (
    BLOCK_SIZE,
    DESCRIBED,
    MIXTURES,
    batch_of,
    chunk,
    make_engine,
    make_runner,
    tiny_model,
)
from tests.tools.emulator_case import needs_compiler
from tools.emulator.ops import kernels_on_cpu

HALVES = [torch.float16, torch.bfloat16]
BLOCK_SIZES = {"cpu": 4, "cuda": 8}
LOADED = [
    *(pytest.param(("cpu", "llama", dtype), id=f"cpu-llama-{dtype}") for dtype in ("bfloat16", "float32")),
    *(
        pytest.param(("cpu", family, dtype), id=f"cpu-{family}-{dtype}")
        for family, dtype in (("gemma2", "float16"), ("qwen2_moe_64", "bfloat16"), ("gpt_oss_64", "bfloat16"))
    ),
    *(
        pytest.param(("cuda", family, dtype), id=f"cuda-{family}-{dtype}", marks=pytest.mark.gpu)
        for family in ("llama_64", "opt_64", "qwen3_80", *KERNEL_MIXTURES)
        for dtype in ("float16", "bfloat16")
    ),
]

# --- texts ----------------------------------------------------------------------------------------------


@pytest.fixture(scope="module", params=LOADED)
def alone(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Alone:
    device, family, dtype = request.param
    checkpoint: Path = make_checkpoint(tmp_path_factory.mktemp(family), family)
    config = EngineConfig(
        model=ModelConfig(
            model=str(checkpoint), device=device, dtype=dtype, skip_tokenizer_init=True, batch_invariant=True
        ),
        cache=CacheConfig(
            block_size=BLOCK_SIZES[device], num_blocks=FEW_TOKENS // BLOCK_SIZES[device], swap_space=1 << 18
        ),
        scheduler=SchedulerConfig(max_num_batched_tokens=40),
    )
    return Alone(load_model(config, lambda _: None))


@given(
    st.lists(requests, min_size=2, max_size=6),
    st.sampled_from(["recompute", "swap"]),
    st.integers(3, 40),
    st.integers(0, 1 << 30),
)
@settings(
    max_examples=8, deadline=None, derandomize=True, phases=[Phase.explicit, Phase.generate],
    suppress_health_check=list(HealthCheck),
)  # fmt: skip
def test_a_reply_is_the_same_alone_and_in_any_mix(
    alone: Alone, asked: list[tuple[tuple[int, ...], int]], mode: str, budget: int, seed: int
) -> None:
    """Beside chats that fork, are cut back, fail and starve the pool, in chunks of any size."""
    limits = {name: getattr(alone.loaded.limits, name) for name in EngineLimits.__slots__}
    chunked: Any = SimpleNamespace(
        limits=EngineLimits(**{**limits, "max_num_batched_tokens": budget}), runner=alone.loaded.runner
    )
    replies = Mix(chunked, mode, seed).run(asked)
    assert [list(reply) for reply in replies] == [alone.reply(*request) for request in asked]


# --- logits ---------------------------------------------------------------------------------------------

FAMILIES = ["llama", "qwen3", "opt", "biased", "gelu", *DESCRIBED, *MIXTURES]
WHERE = [
    pytest.param("emulated", marks=needs_compiler),
    pytest.param("cuda", marks=pytest.mark.gpu),
]
NUM_BLOCKS = 64
TYPES = [*HALVES, torch.float32]
EMULATED = {("bounded_experts", HALVES[1])}


def invariant_model(family: str, device: str, dtype: torch.dtype) -> NativeModel:
    model = tiny_model(family, device, dtype)
    use_arithmetic(model, InvariantArithmetic())
    return model


def tokens(length: int, seed: int) -> list[int]:
    return Random(seed).choices(range(300), k=length)


class Texts:
    """Three sequences in blocks of their own, in no order."""

    def __init__(self, lens: tuple[int, int, int]) -> None:
        blocks = Random(4).sample(range(NUM_BLOCKS), NUM_BLOCKS)
        self.texts = [tokens(length, seed) for seed, length in enumerate(lens)]
        self.tables = [[blocks.pop() for _ in range(-(-length // BLOCK_SIZE))] for length in lens]

    def part(self, number: int, start: int = 0, end: int | None = None) -> ScheduledSequence:
        made = chunk(self.texts[number], self.tables[number], start, end)
        made.sequence.stop_length = 1000
        made.sequence.writable_len = len(self.tables[number]) * BLOCK_SIZE
        return made


class EagerRoad:
    """Batches through an eager runner: what it says behind each text that ends in them."""

    def __init__(self, runner: NativeModelRunner) -> None:
        self.runner = runner

    def run(self, *parts: ScheduledSequence) -> dict[int, torch.Tensor]:
        inputs = flatten(list(parts), BLOCK_SIZE, self.runner.device)
        logits = self.runner.forward(inputs)
        return {parts[i].sequence.seq_id: logits[row].clone() for row, i in enumerate(inputs.sampled)}


class CapturedRoad:
    """The same through captured steps; nothing is left to others."""

    def __init__(self, runner: CapturedRunner) -> None:
        self.runner = runner

    @torch.inference_mode()
    def run(self, *parts: ScheduledSequence) -> dict[int, torch.Tensor]:
        decodes = [part for part in parts if part.num_tokens == 1 and part.samples]
        chunks = [part for part in parts if part not in decodes]
        found: dict[int, torch.Tensor] = {}
        if decodes:
            begun = self.runner.decodes.begin(batch_of(*decodes), goes_on=False)
            assert begun is not None
            self.runner.decodes.finish(begun)
            logits = self.runner.decodes.last_logits
            found |= {part.sequence.seq_id: logits[row].clone() for row, part in enumerate(decodes)}
        if chunks:
            assert self.runner.prefills is not None
            prefilling = self.runner.prefills.begin(batch_of(*chunks))
            assert prefilling is not None
            self.runner.prefills.finish(prefilling)
            logits = self.runner.prefills.logits
            found |= {part.sequence.seq_id: logits[i].clone() for i, part in enumerate(chunks) if part.samples}
        return found


Road = EagerRoad | CapturedRoad


def check_all_ways(roads: list[Road], lens: tuple[int, int, int], num_cut: int = 3) -> None:
    """Whole, in pieces (the first `num_cut`), as a decode, in company, on every road and across them: always the
    same bits."""
    texts = Texts(lens)
    wanted = {}
    for number, table in enumerate(texts.tables):
        wanted |= roads[0].run(texts.part(number))
        assert wanted[table[0]].isfinite().all()
    for road in roads:
        ends = [(number, length) for number, length in enumerate(lens)]
        found = [road.run(*(texts.part(number) for number, _ in ends))]
        for number, length in ends[:num_cut]:
            for start, end in ((0, 5), (5, length // 2), (length // 2, length - 1), (length - 1, length)):
                last = road.run(texts.part(number, start, end))
            found.append(last)
        found.append(road.run(*(texts.part(number, length - 1) for number, length in ends)))
        found.append(road.run(texts.part(0, lens[0] - 1), texts.part(1), texts.part(2, 3)))
        for results in found:
            for seq_id, logits in results.items():
                assert torch.equal(logits, wanted[seq_id])
        assert {seq_id for results in found for seq_id in results} == set(wanted)


@contextmanager
def device_of(where: str) -> Iterator[str]:
    """`"emulated"`: the kernels on tensors of the CPU."""
    with kernels_on_cpu(seed=1) if where == "emulated" else nullcontext():
        yield "cpu" if where == "emulated" else where


@pytest.mark.parametrize("where", WHERE)
@pytest.mark.parametrize("dtype", HALVES, ids=str)
@pytest.mark.parametrize("family", FAMILIES)
def test_logits_are_the_same_on_every_road_of_the_kernels(family: str, dtype: torch.dtype, where: str) -> None:
    if where == "emulated" and (family, dtype) not in EMULATED:
        pytest.skip("one model is enough of kernels that run for seconds")
    with device_of(where) as device:
        model = invariant_model(family, device, dtype)
        runner = make_runner(model, NUM_BLOCKS, captured=True, max_num_tokens=512, batch_invariant=True)
        roads: list[Road] = [EagerRoad(eager_of(runner)), CapturedRoad(runner)]  # type: ignore[arg-type]
        if where == "emulated":
            check_all_ways(roads, (26, 18, 14), num_cut=1)
        else:
            check_all_ways(roads, (280, 33, 90))


@pytest.mark.parametrize(("family", "dtype"), [(family, TYPES[i % 3]) for i, family in enumerate(FAMILIES)])
def test_logits_are_the_same_on_every_road_of_torch(family: str, dtype: torch.dtype) -> None:
    model = invariant_model(family, "cpu", dtype)
    check_all_ways([EagerRoad(NativeModelRunner(model, torch_backend(model), torch.device("cpu")))], (70, 33, 14))


def torch_backend(model: NativeModel) -> AttentionBackend:
    heads: Any = model.layers[0].attention.heads  # type: ignore[index,union-attr]
    shape = CacheShape(2, BLOCK_SIZE, heads.num_heads, heads.num_kv_heads, heads.head_dim, model.head.weight.dtype)
    return TorchAttention(shape, NUM_BLOCKS, 0, torch.device("cpu"), batch_invariant=True)


# --- captured steps through the engine ------------------------------------------------------------------


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", HALVES, ids=str)
@pytest.mark.parametrize("family", ["llama", "qwen3", "opt", "many_experts"])
@pytest.mark.parametrize("mode", ["recompute", "swap"])
def test_replies_of_steps_begun_ahead_are_those_of_eager_ones(mode: str, family: str, dtype: torch.dtype) -> None:
    """Twelve chats, of which some share a beginning, in chunks of several sizes and a pool that is too small."""
    model = invariant_model(family, "cuda", dtype)
    params = [
        SamplingParams(temperature=0, max_tokens=60, ignore_eos=True),
        SamplingParams(temperature=1.0, seed=5, max_tokens=60, ignore_eos=True),
    ]
    shared = tokens(100, 77)
    prompts = [(shared if i % 3 else []) + tokens(3 + 11 * i, i) for i in range(12)]
    alone = []
    for i, prompt in enumerate(prompts):
        runner = make_runner(model, NUM_BLOCKS, captured=False, batch_invariant=True)
        alone.append(replies(make_engine(runner), [prompt], [params[i % 2]])[0])
    for budget in (16, 100, 512):
        runner = make_runner(model, 90, captured=True, num_host_blocks=90, max_num_tokens=512, batch_invariant=True)
        engine = make_engine(runner, preemption_mode=mode, num_host_blocks=90, max_num_batched_tokens=budget)
        assert replies(engine, prompts, [params[i % 2] for i in range(12)]) == alone
        assert runner.decodes.num_ahead > 0


def replies(engine: EngineCore, prompts: list[list[int]], params: list[SamplingParams]) -> list[list[int]]:
    seq_ids = [engine.open() for _ in prompts]
    for seq_id, prompt, wanted in zip(seq_ids, prompts, params, strict=True):
        engine.extend(seq_id, prompt, wanted)
    while engine.has_work:
        engine.step()
    engine.check_integrity()
    return [engine.sequences[seq_id].output_token_ids for seq_id in seq_ids]
