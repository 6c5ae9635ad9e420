"""Sampled replies through the whole engine: a seed fixes them, whatever else is in the batch."""

import pytest

from pagedchat import LLM, SamplingParams
from pagedchat.requests.prompts import Prompt
from tests.helpers_models import make_checkpoint

PROMPT: Prompt = {"prompt_token_ids": [5, 6, 7, 8]}
OTHERS: list[Prompt] = [{"prompt_token_ids": list(range(10, 20 + 7 * i))} for i in range(4)]


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(make_checkpoint(tmp_path_factory.mktemp("llama"), "llama"))


def load(checkpoint: str, **arguments: object) -> LLM:
    return LLM(checkpoint, device="cpu", num_blocks=64, skip_tokenizer_init=True, **arguments)  # type: ignore[arg-type]


def sample(llm: LLM, prompts: list[Prompt], **settings: object) -> list[list[int]]:
    params = SamplingParams(max_tokens=20, ignore_eos=True, **settings)  # type: ignore[arg-type]
    return [output.outputs[0].token_ids for output in llm.generate(prompts, params, use_tqdm=False)]


def test_seed_gives_the_same_reply_whatever_else_is_in_the_batch(checkpoint: str) -> None:
    alone = sample(load(checkpoint), [PROMPT], seed=5)[0]
    assert sample(load(checkpoint), [*OTHERS, PROMPT], seed=5)[-1] == alone
    assert sample(load(checkpoint, max_num_batched_tokens=3), [PROMPT, *OTHERS], seed=5)[0] == alone
    assert sample(load(checkpoint), [PROMPT], seed=6)[0] != alone


def test_seed_of_the_engine_fixes_requests_without_one(checkpoint: str) -> None:
    prompts = [PROMPT] * 3
    first = sample(load(checkpoint, seed=1), prompts)
    assert sample(load(checkpoint, seed=1), prompts) == first
    assert sample(load(checkpoint, seed=2), prompts) != first
    assert len({tuple(tokens) for tokens in first}) == 3


def test_only_the_most_likely_token_is_left_by_top_k_1(checkpoint: str) -> None:
    llm = load(checkpoint)
    assert sample(llm, [PROMPT], top_k=1, temperature=2.0) == sample(llm, [PROMPT], temperature=0)
