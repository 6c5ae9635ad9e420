"""How likely tokens were, through the whole engine: as transformers says, whatever the engine does."""

from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoModelForCausalLM

from pagedchat import LLM, RequestOutput, SamplingParams
from pagedchat.errors import InvalidValueError, RequestError
from tests.backends import Setup, kernels_on_cpu, setups
from tests.helpers_models import make_checkpoint

SETUPS = setups(["opt", "llama"], ["llama"], ["opt_64", "llama_64"])
PROMPTS = [[5, 6, 7], [(7 * i) % 90 + 3 for i in range(40)], [(7 * i) % 90 + 3 for i in range(37)], [9]]
TOLERANCE = 1e-4
GREEDY: dict[str, Any] = {"temperature": 0, "max_tokens": 9, "ignore_eos": True}
DRAWN = {**GREEDY, "temperature": 1.3, "seed": 4, "repetition_penalty": 1.4, "top_p": 0.9}


@pytest.fixture(scope="module", params=SETUPS)
def setup(request: pytest.FixtureRequest) -> Setup:
    return request.param


@pytest.fixture(scope="module")
def checkpoint(setup: Setup, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_checkpoint(tmp_path_factory.mktemp(setup.family), setup.family)


@pytest.fixture(scope="module")
def model(checkpoint: Path) -> torch.nn.Module:
    return AutoModelForCausalLM.from_pretrained(checkpoint, dtype=torch.float32).eval()


def load(checkpoint: Path, setup: Setup, **arguments: object) -> LLM:
    with kernels_on_cpu():
        return LLM(str(checkpoint), dtype="float32", skip_tokenizer_init=True, **setup.arguments, **arguments)


@torch.inference_mode()
def check(model: torch.nn.Module, output: RequestOutput, count: int, prompt_count: int | None) -> None:
    """Every number of an output against the model's own log-softmax."""
    [reply] = output.outputs
    token_ids = output.prompt_token_ids + reply.token_ids
    wanted = torch.log_softmax(model(torch.tensor([token_ids])).logits[0].float(), dim=-1)
    told = [*(output.prompt_logprobs or [None] * len(output.prompt_token_ids)), *(reply.logprobs or [])]
    assert len(told) == len(token_ids)
    start = len(output.prompt_token_ids) if prompt_count is None else 1
    assert all(each is None for each in told[:start])
    for place, (token, each) in enumerate(zip(token_ids[start:], told[start:], strict=True), start):
        row = wanted[place - 1]
        most = (prompt_count or 0) if place < len(output.prompt_token_ids) else count
        assert each is not None
        assert next(iter(each)) == token
        assert len(each) in (most, most + 1)
        for token_id, one in each.items():
            assert one.logprob == pytest.approx(float(row[token_id]), abs=TOLERANCE)
            assert abs(one.rank - 1 - int((row > row[token_id]).sum())) <= int(
                ((row - row[token_id]).abs() < TOLERANCE).sum() - 1
            )
        assert sorted(one.rank for one in each.values())[:most] == list(range(1, most + 1))
    assert reply.cumulative_logprob == pytest.approx(
        sum(each[t].logprob for t, each in zip(reply.token_ids, reply.logprobs or [], strict=True))
    )


@pytest.mark.parametrize("budget", [5, 1000])
def test_numbers_are_those_of_transformers(
    model: torch.nn.Module, checkpoint: Path, setup: Setup, budget: int
) -> None:
    """Of replies that are drawn with penalties too: what is told is the model's own."""
    llm = load(checkpoint, setup, num_blocks=64, max_num_batched_tokens=budget)
    params = [
        SamplingParams(**GREEDY, logprobs=3, prompt_logprobs=2),
        SamplingParams(**DRAWN, logprobs=0, prompt_logprobs=0),
        SamplingParams(**DRAWN, logprobs=20),
        SamplingParams(**GREEDY, logprobs=1, prompt_logprobs=20),
    ]
    for _ in range(2):  # the second time all beginnings are in the cache
        outputs = llm.generate([{"prompt_token_ids": prompt} for prompt in PROMPTS], params, use_tqdm=False)
        for output, each in zip(outputs, params, strict=True):
            check(model, output, each.logprobs or 0, each.prompt_logprobs)
    assert [output.num_cached_tokens > 0 for output in outputs] == [False, False, True, False]


def test_numbers_survive_preemption(model: torch.nn.Module, checkpoint: Path, setup: Setup) -> None:
    few = 96 // setup.block_size
    llm = load(checkpoint, setup, block_size=setup.block_size, num_blocks=few, max_num_batched_tokens=16)
    params = SamplingParams(**GREEDY, logprobs=2, prompt_logprobs=1)
    outputs = llm.generate([{"prompt_token_ids": prompt} for prompt in PROMPTS * 2], params, use_tqdm=False)
    assert llm.stats().preemptions > 0
    for output in outputs:
        check(model, output, 2, 1)


def test_asking_changes_no_token(checkpoint: Path, setup: Setup) -> None:
    llm = load(checkpoint, setup, num_blocks=64)
    prompts = [{"prompt_token_ids": prompt} for prompt in PROMPTS]
    for kind in (GREEDY, DRAWN):
        without, told = (
            llm.generate(prompts, SamplingParams(**kind, logprobs=asked), use_tqdm=False) for asked in (None, 5)
        )
        assert [each.outputs[0].token_ids for each in without] == [each.outputs[0].token_ids for each in told]
        assert without[0].outputs[0].logprobs is without[0].outputs[0].cumulative_logprob is None
        assert without[0].prompt_logprobs is None


def test_more_tokens_than_there_are_is_refused(tmp_path: Path) -> None:
    llm = LLM(str(make_checkpoint(tmp_path, "opt", vocab_size=12)), skip_tokenizer_init=True, device="cpu")
    before = llm.stats()
    for name in ("logprobs", "prompt_logprobs"):
        with pytest.raises(RequestError, match=f"^{name} is 13, but the model has 12 tokens"):
            llm.generate({"prompt_token_ids": [3]}, SamplingParams(**{name: 13}))
        for wrong in (-1, 21, 1.5, True):
            with pytest.raises(InvalidValueError, match=f"^{name} is {wrong}"):
                SamplingParams(**{name: wrong})
    assert llm.stats() == before
    [output] = llm.generate({"prompt_token_ids": [3]}, SamplingParams(logprobs=12, max_tokens=1))
    assert output.outputs[0].logprobs is not None
    assert len(output.outputs[0].logprobs[0]) == 12
