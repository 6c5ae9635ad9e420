"""Whole engines over a cache of one byte an element: twice the blocks and more, the same text in any company and
however blocks move, and tokens that hardly differ from those of the model's own type.
"""

from collections.abc import Iterator
from pathlib import Path

import pytest

from pagedchat import LLM, SamplingParams
from pagedchat.errors import InvalidValueError, ModelError
from pagedchat.ops.cpu.kernels import cpu_kernels
from pagedchat.runtime.attention import byte_blocks
from pagedchat.runtime.cpu.step import CpuStep
from tests.helpers_models import make_checkpoint

KINDS = ["int8", "fp8"]
GREEDY = SamplingParams(temperature=0, max_tokens=14, ignore_eos=True)
SHARED = list(range(40, 60))
PROMPTS = [
    [5, 6, 7],
    [*SHARED, 8],
    [*SHARED, 9, 10, 11],
    *([(step * i + first) % 90 + 3 for i in range(length)] for step, first, length in (
        (7, 0, 40), (11, 0, 27), (13, 5, 33), (17, 2, 9), (19, 1, 21),
    )),
]  # fmt: skip
"""Eight chats, two of which begin alike."""


@pytest.fixture(scope="module", params=["llama_64", "opt"])
def checkpoint(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    return make_checkpoint(tmp_path_factory.mktemp(request.param), request.param)


def load(checkpoint: Path, kind: str, **arguments: object) -> LLM:
    return LLM(
        str(checkpoint), device="cpu", dtype="float32", skip_tokenizer_init=True, kv_cache_dtype=kind, block_size=4,
        **arguments,
    )  # fmt: skip


def replies(llm: LLM, prompts: list[list[int]] = PROMPTS) -> list[list[int]]:
    outputs = llm.generate([{"prompt_token_ids": prompt} for prompt in prompts], GREEDY, use_tqdm=False)
    return [output.outputs[0].token_ids for output in outputs]


@pytest.mark.parametrize("kind", KINDS)
def test_the_same_text_alone_and_among_seven_others(checkpoint: Path, kind: str) -> None:
    llm = load(checkpoint, kind, num_blocks=200, enable_prefix_caching=False, max_num_batched_tokens=23)
    together = replies(llm)
    assert len(set(map(tuple, together))) == len(PROMPTS)
    assert [replies(llm, [prompt])[0] for prompt in PROMPTS] == together


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("mode", ["recompute", "swap"])
def test_preempted_chats_go_on_as_if_nothing_had_been(checkpoint: Path, kind: str, mode: str) -> None:
    llm = load(checkpoint, kind, num_blocks=24, preemption_mode=mode, swap_space="1MiB")
    roomy = load(checkpoint, kind, num_blocks=200)
    assert replies(llm) == replies(roomy)
    stats = llm.stats()
    assert stats.preemptions > 0
    assert (stats.swaps_out > 0, stats.swaps_in > 0) == (mode == "swap", mode == "swap")


@pytest.mark.parametrize("kind", KINDS)
def test_what_is_found_in_the_prefix_cache_has_its_scales(checkpoint: Path, kind: str) -> None:
    llm = load(checkpoint, kind, num_blocks=200)
    assert replies(llm) == replies(llm)
    assert llm.stats().prefix_hits > 0


@pytest.mark.parametrize("kind", KINDS)
def test_decodes_are_whole_steps_where_there_are_kernels(
    checkpoint: Path, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if cpu_kernels() is None or "opt" in str(checkpoint):
        pytest.skip("its decodes go through modules")
    steps = []
    run = CpuStep.run
    monkeypatch.setattr(CpuStep, "run", lambda *args: (steps.append(len(args[1])), run(*args))[1])
    by_kernels = replies(load(checkpoint, kind, num_blocks=200))
    assert max(steps) == len(PROMPTS)
    monkeypatch.setattr("pagedchat.runtime.cpu.runner.CpuModelRunner._make_steps", lambda _: None)
    count = len(steps)
    by_modules = replies(load(checkpoint, kind, num_blocks=200))
    assert len(steps) == count
    assert by_kernels == by_modules


def test_the_same_memory_has_more_blocks(checkpoint: Path) -> None:
    found = {kind: load(checkpoint, kind, kv_cache_memory="1MiB").info for kind in ("auto", *KINDS)}
    assert found["auto"].kv_cache_dtype == ""
    for kind in KINDS:
        info = found[kind]
        assert info.kv_cache_dtype == kind
        assert info.num_blocks == (1 << 20) // info.block_bytes
        assert info.num_blocks > 3 * found["auto"].num_blocks  # float32: four times less the scales


def test_half_precision_has_nearly_twice_the_blocks(tmp_path: Path) -> None:
    folder = str(make_checkpoint(tmp_path, "llama_64"))
    found = [
        LLM(folder, device="cpu", dtype="bfloat16", skip_tokenizer_init=True, kv_cache_dtype=kind,
            kv_cache_memory="1MiB").info.num_blocks
        for kind in ("auto", "int8")
    ]  # fmt: skip
    assert found[1] / found[0] > 1.9


def test_a_cache_that_gives_back_other_numbers_is_found_out(
    checkpoint: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rounding has its room in the check; a scale that is another token's has none."""
    read = byte_blocks.dequantised
    monkeypatch.setattr(byte_blocks, "dequantised", lambda e, s, dtype: read(e.flip(1), s, dtype))
    with pytest.raises(ModelError, match="gives other results with the paged cache"):
        load(checkpoint, "fp8", num_blocks=40)


def test_another_type_is_refused_in_one_sentence() -> None:
    with pytest.raises(InvalidValueError, match="--kv-cache-dtype is 'int4'"):
        LLM(kv_cache_dtype="int4")  # type: ignore[arg-type]


@pytest.mark.gpu
@pytest.mark.parametrize("exact", [False, True])
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("family", ["llama_64", "opt_64", "qwen3_80"])
def test_captured_steps_on_a_gpu_are_trusted_and_go_on_after_swaps(
    family: str, kind: str, exact: bool, tmp_path: Path
) -> None:
    """Tokens are compared bit for bit where company changes none. How near the others are to the truth is judged by
    tests/runtime/graphs/test_random_walk.py: random weights so small choose other tokens by rounding alone."""
    folder = str(make_checkpoint(tmp_path, family))
    arguments = {
        "device": "cuda", "dtype": "float16", "skip_tokenizer_init": True, "kv_cache_dtype": kind,
        "batch_invariant": exact, "block_size": 8,
    }  # fmt: skip
    few = LLM(folder, num_blocks=20, preemption_mode="swap", swap_space="1MiB", **arguments)
    assert (few.info.attention_backend, few.info.kv_cache_dtype) == ("cuda", kind)
    assert few.notices == ()  # no kind of step was found to be wrong
    found = replies(few)
    assert few.stats().swaps_in > 0
    if exact:
        assert found == replies(LLM(folder, num_blocks=200, **arguments))


@pytest.mark.gpu
@pytest.mark.parametrize("kind", KINDS)
def test_the_same_bits_alone_and_among_seven_others_on_a_gpu(kind: str, tmp_path: Path) -> None:
    llm = LLM(
        str(make_checkpoint(tmp_path, "llama_64")), device="cuda", dtype="float16", skip_tokenizer_init=True,
        kv_cache_dtype=kind, num_blocks=200, batch_invariant=True, enable_prefix_caching=False,
        max_num_batched_tokens=23,
    )  # fmt: skip
    together = replies(llm)
    assert [replies(llm, [prompt])[0] for prompt in PROMPTS] == together
