"""Greedy tokens through the whole engine equal `transformers.generate`, whatever the engine does."""

from collections.abc import Callable
from pathlib import Path

import pytest

from pagedchat import LLM, SamplingParams
from tests.backends import Setup, kernels_on_cpu, setups
from tests.helpers_models import make_checkpoint, reference_replies

SETUPS = setups(
    ["opt", "gpt2", "llama", "qwen2", "mistral", "glm_64"],
    ["llama"],
    ["opt_64", "llama_64", "qwen3_80", "mistral_64", "glm_64"],
)
NUM_TOKENS = 14
GREEDY = SamplingParams(temperature=0, max_tokens=NUM_TOKENS, ignore_eos=True)
SHARED = list(range(40, 60))
PROMPTS = [
    [5, 6, 7],
    [*SHARED, 8],  # two prompts with 20 tokens in common: a whole block of 16 and the head of the next
    [*SHARED, 9, 10, 11],
    [(7 * i) % 90 + 3 for i in range(40)],
    [(11 * i) % 90 + 3 for i in range(27)],
]
CHUNKS = [3, 16, 1000]
"""Token budgets of a step: less than one token for each sequence, about a block, and more than everything."""

FEW_TOKENS = 72
"""A pool of so many slots: the longest prompt with its reply needs 54; all five need 163."""


@pytest.fixture(scope="module", params=SETUPS)
def setup(request: pytest.FixtureRequest) -> Setup:
    return request.param


@pytest.fixture(scope="module")
def checkpoint(setup: Setup, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_checkpoint(tmp_path_factory.mktemp(setup.family), setup.family)


@pytest.fixture(scope="module")
def expected(checkpoint: Path) -> list[list[int]]:
    return reference_replies(checkpoint, PROMPTS, NUM_TOKENS)


@pytest.fixture
def load(checkpoint: Path, setup: Setup) -> Callable[..., LLM]:
    def load(**arguments: object) -> LLM:
        with kernels_on_cpu():
            llm = LLM(str(checkpoint), dtype="float32", skip_tokenizer_init=True, **setup.arguments, **arguments)
        assert llm.info.attention_backend == setup.backend
        return llm

    return load


@pytest.fixture
def few_blocks(setup: Setup) -> dict[str, int]:
    return {"block_size": setup.block_size, "num_blocks": FEW_TOKENS // setup.block_size}


def generate(llm: LLM) -> tuple[list[list[int]], list[int]]:
    """Tokens of all replies, and how much of each prompt was found in the cache."""
    outputs = llm.generate([{"prompt_token_ids": prompt} for prompt in PROMPTS], GREEDY, use_tqdm=False)
    return [output.outputs[0].token_ids for output in outputs], [output.num_cached_tokens for output in outputs]


def test_replies_to_compare_are_not_all_alike(expected: list[list[int]]) -> None:
    assert len({tuple(tokens) for tokens in expected}) == len(PROMPTS)


@pytest.mark.parametrize(("chunk", "caching"), [(CHUNKS[0], True), (CHUNKS[1], False), (CHUNKS[2], True)])
def test_any_chunk_size_with_and_without_prefix_cache(
    load: Callable[..., LLM], expected: list[list[int]], chunk: int, caching: bool
) -> None:
    llm = load(num_blocks=64, max_num_batched_tokens=chunk, enable_prefix_caching=caching)
    first, _ = generate(llm)
    again, cached = generate(llm)
    assert first == expected
    assert again == expected
    all_but_last = [len(prompt) - 1 for prompt in PROMPTS]
    assert cached == (all_but_last if caching else [0] * len(PROMPTS))
    assert llm.stats().blocks_in_use == 0


@pytest.mark.parametrize(("chunk", "mode"), [(CHUNKS[0], "swap"), (CHUNKS[1], "recompute"), (CHUNKS[2], "swap")])
def test_preemption(
    load: Callable[..., LLM], few_blocks: dict[str, int], expected: list[list[int]], mode: str, chunk: int
) -> None:
    llm = load(max_num_batched_tokens=chunk, preemption_mode=mode, swap_space="1MiB", **few_blocks)
    tokens, _ = generate(llm)
    stats = llm.stats()
    assert tokens == expected
    assert stats.preemptions > 0
    assert (stats.swaps_out > 0, stats.swaps_in > 0) == (mode == "swap", mode == "swap")
    assert (stats.blocks_in_use, stats.host_blocks_in_use) == (0, 0)


def test_preemption_without_prefix_cache(
    load: Callable[..., LLM], few_blocks: dict[str, int], expected: list[list[int]]
) -> None:
    """Nothing that was dropped can be found again: all of it is computed anew."""
    llm = load(enable_prefix_caching=False, **few_blocks)
    tokens, _ = generate(llm)
    assert tokens == expected
    assert llm.stats().preemptions > 0
