"""Greedy tokens of the runner equal `transformers.generate`, in any batch, any chunks, any place of the blocks."""

from pathlib import Path

import pytest

from pagedchat.config import CacheConfig, EngineConfig, ModelConfig
from pagedchat.engine.output import ModelRunner
from pagedchat.runtime.loading.build import load_model
from tests.backends import Setup, kernels_on_cpu, setups
from tests.helpers_models import make_checkpoint, reference_replies
from tests.runtime.drive import Driver

NUM_TOKENS = 12
PROMPTS = [[5], [7 * i % 90 + 3 for i in range(29)], [9, 8, 7], [11 * i % 90 + 3 for i in range(16)]]


@pytest.fixture(scope="module", params=setups())
def setup(request: pytest.FixtureRequest) -> Setup:
    return request.param


@pytest.fixture(scope="module")
def checkpoint(setup: Setup, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_checkpoint(tmp_path_factory.mktemp("model") / setup.family, setup.family)


@pytest.fixture(scope="module")
def expected(checkpoint: Path) -> list[list[int]]:
    replies = reference_replies(checkpoint, PROMPTS, NUM_TOKENS)
    assert len({tuple(reply) for reply in replies}) == len(PROMPTS), "the replies tell nothing apart"
    return replies


@pytest.fixture(scope="module")
def runner(checkpoint: Path, setup: Setup) -> ModelRunner:
    model = ModelConfig(model=str(checkpoint), skip_tokenizer_init=True, dtype="float32", **setup.arguments)
    cache = CacheConfig(block_size=setup.block_size, num_blocks=80, swap_space=1 << 20)
    with kernels_on_cpu():
        loaded = load_model(EngineConfig(model=model, cache=cache))
    assert loaded.info.attention_backend == setup.backend
    return loaded.runner


@pytest.mark.parametrize("chunk", [1000, 16, 7])
def test_together_in_chunks(runner: ModelRunner, expected: list[list[int]], chunk: int) -> None:
    driver = Driver(runner, chunk)
    for prompt in PROMPTS:
        driver.add(prompt)
    assert driver.run(NUM_TOKENS) == expected


def test_prompts_that_come_while_others_decode(runner: ModelRunner, expected: list[list[int]]) -> None:
    driver = Driver(runner, chunk=9)
    waiting = list(PROMPTS)
    while waiting or driver.step(NUM_TOKENS):
        if waiting:
            driver.add(waiting.pop(0))
            driver.step(NUM_TOKENS)
            driver.step(NUM_TOKENS)
    assert [seq.output_token_ids for seq in driver.sequences] == expected


def test_blocks_that_move_between_steps(runner: ModelRunner, expected: list[list[int]]) -> None:
    driver = Driver(runner, chunk=10)
    for prompt in PROMPTS:
        driver.add(prompt)

    def stir() -> None:
        driver.move(driver.sequences[1])
        driver.swap_out_and_in(driver.sequences[2])
        driver.swap_out_and_in(driver.sequences[3])

    assert driver.run(NUM_TOKENS, stir) == expected
