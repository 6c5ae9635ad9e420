"""Greedy tokens through the whole engine equal `transformers.generate`, whatever the engine does."""

from pathlib import Path

import pytest

from pagedchat import LLM, SamplingParams
from tests.helpers_models import make_checkpoint, reference_replies

FAMILIES = ["opt", "gpt2", "llama", "qwen2", "mistral", "gpt_neox"]
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

BLOCK_SIZE, FEW_BLOCKS = 4, 18
"""The longest prompt with its reply needs 14 blocks; all five need 42."""


@pytest.fixture(scope="module", params=FAMILIES)
def checkpoint(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_checkpoint(tmp_path_factory.mktemp(request.param), request.param)


@pytest.fixture(scope="module")
def expected(checkpoint: Path) -> list[list[int]]:
    return reference_replies(checkpoint, PROMPTS, NUM_TOKENS)


def load(checkpoint: Path, **arguments: object) -> LLM:
    return LLM(str(checkpoint), device="cpu", dtype="float32", skip_tokenizer_init=True, **arguments)  # type: ignore[arg-type]


def generate(llm: LLM) -> tuple[list[list[int]], list[int]]:
    """Tokens of all replies, and how much of each prompt was found in the cache."""
    outputs = llm.generate([{"prompt_token_ids": prompt} for prompt in PROMPTS], GREEDY, use_tqdm=False)
    return [output.outputs[0].token_ids for output in outputs], [output.num_cached_tokens for output in outputs]


def test_replies_to_compare_are_not_all_alike(expected: list[list[int]]) -> None:
    assert len({tuple(tokens) for tokens in expected}) == len(PROMPTS)


@pytest.mark.parametrize("chunk", CHUNKS)
@pytest.mark.parametrize("caching", [True, False])
def test_any_chunk_size_with_and_without_prefix_cache(
    checkpoint: Path, expected: list[list[int]], chunk: int, caching: bool
) -> None:
    llm = load(checkpoint, num_blocks=64, max_num_batched_tokens=chunk, enable_prefix_caching=caching)
    first, _ = generate(llm)
    again, cached = generate(llm)
    assert first == expected
    assert again == expected
    all_but_last = [len(prompt) - 1 for prompt in PROMPTS]
    assert cached == (all_but_last if caching else [0] * len(PROMPTS))
    assert llm.stats().blocks_in_use == 0


@pytest.mark.parametrize("chunk", CHUNKS)
@pytest.mark.parametrize("mode", ["recompute", "swap"])
def test_preemption(checkpoint: Path, expected: list[list[int]], mode: str, chunk: int) -> None:
    llm = load(
        checkpoint,
        num_blocks=FEW_BLOCKS,
        block_size=BLOCK_SIZE,
        max_num_batched_tokens=chunk,
        preemption_mode=mode,
        swap_space="1MiB",
    )
    tokens, _ = generate(llm)
    stats = llm.stats()
    assert tokens == expected
    assert stats.preemptions > 0
    assert (stats.swaps_out > 0, stats.swaps_in > 0) == (mode == "swap", mode == "swap")
    assert (stats.blocks_in_use, stats.host_blocks_in_use) == (0, 0)


def test_preemption_without_prefix_cache(checkpoint: Path, expected: list[list[int]]) -> None:
    """Nothing that was dropped can be found again: all of it is computed anew."""
    llm = load(checkpoint, num_blocks=FEW_BLOCKS, block_size=BLOCK_SIZE, enable_prefix_caching=False)
    tokens, _ = generate(llm)
    assert tokens == expected
    assert llm.stats().preemptions > 0
