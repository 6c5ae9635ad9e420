"""Greedy tokens of the runner equal `transformers.generate`, in any batch, any chunks, any place of the blocks."""

from pathlib import Path

import pytest

from pagedchat.config import CacheConfig, EngineConfig, ModelConfig
from pagedchat.runtime.build import load_model
from pagedchat.runtime.model_runner import TorchModelRunner
from tests.helpers_models import FAMILIES, make_checkpoint, reference_replies
from tests.runtime.drive import Driver

NUM_TOKENS = 12
PROMPTS = [[5], [7 * i % 90 + 3 for i in range(29)], [9, 8, 7], [11 * i % 90 + 3 for i in range(16)]]
DEVICES = ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)]


@pytest.fixture(scope="module", params=FAMILIES)
def checkpoint(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_checkpoint(tmp_path_factory.mktemp("model") / request.param, request.param)


@pytest.fixture(scope="module")
def expected(checkpoint: Path) -> list[list[int]]:
    replies = reference_replies(checkpoint, PROMPTS, NUM_TOKENS)
    assert len({tuple(reply) for reply in replies}) == len(PROMPTS), "the replies tell nothing apart"
    return replies


@pytest.fixture(scope="module", params=DEVICES)
def runner(checkpoint: Path, request: pytest.FixtureRequest) -> TorchModelRunner:
    config = EngineConfig(
        model=ModelConfig(model=str(checkpoint), skip_tokenizer_init=True, device=request.param, dtype="float32"),
        cache=CacheConfig(block_size=4, num_blocks=80, swap_space=1 << 20),
    )
    loaded = load_model(config).runner
    assert isinstance(loaded, TorchModelRunner)
    return loaded


@pytest.mark.parametrize("chunk", [1000, 16, 7, 5])
def test_together_in_chunks(runner: TorchModelRunner, expected: list[list[int]], chunk: int) -> None:
    driver = Driver(runner, chunk)
    for prompt in PROMPTS:
        driver.add(prompt)
    assert driver.run(NUM_TOKENS) == expected


def test_prompts_that_come_while_others_decode(runner: TorchModelRunner, expected: list[list[int]]) -> None:
    driver = Driver(runner, chunk=9)
    waiting = list(PROMPTS)
    while waiting or driver.step(NUM_TOKENS):
        if waiting:
            driver.add(waiting.pop(0))
            driver.step(NUM_TOKENS)
            driver.step(NUM_TOKENS)
    assert [seq.output_token_ids for seq in driver.sequences] == expected


def test_blocks_that_move_between_steps(runner: TorchModelRunner, expected: list[list[int]]) -> None:
    driver = Driver(runner, chunk=10)
    for prompt in PROMPTS:
        driver.add(prompt)

    def stir() -> None:
        driver.move(driver.sequences[1])
        driver.swap_out_and_in(driver.sequences[2])
        driver.swap_out_and_in(driver.sequences[3])

    assert driver.run(NUM_TOKENS, stir) == expected
