"""Beam search through the whole engine: texts and scores of transformers' `num_beams`, whatever the engine does.

A score is told apart as vLLM has it: the sum of the log-probabilities, which transformers divides by the number of
generated tokens to the power of the length penalty.
"""

from pathlib import Path

import pytest
import torch
from transformers import AutoModelForCausalLM, GenerationConfig

from pagedchat import LLM, BeamSearchOutput, BeamSearchParams, SamplingParams
from tests.backends import Setup, kernels_on_cpu, setups
from tests.helpers_models import make_checkpoint

SETUPS = setups(["opt", "llama"], ["llama"], ["opt_64", "llama_64"])
VOCAB, EOS = 24, 2
"""So few tokens that beams end by themselves."""
PROMPTS = [[5, 6, 7, 8, 9, 10, 11], [(7 * i) % 20 + 3 for i in range(17)], [9]]
CASES = [
    BeamSearchParams(2, 1), BeamSearchParams(2, 12), BeamSearchParams(4, 9, length_penalty=0.0),
    BeamSearchParams(3, 14, length_penalty=2.0), BeamSearchParams(5, 8, length_penalty=-1.0),
    BeamSearchParams(4, 16, ignore_eos=True),
]  # fmt: skip


@pytest.fixture(scope="module", params=SETUPS)
def setup(request: pytest.FixtureRequest) -> Setup:
    return request.param


@pytest.fixture(scope="module")
def checkpoint(setup: Setup, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_checkpoint(tmp_path_factory.mktemp(setup.family), setup.family, vocab_size=VOCAB)


@pytest.fixture(scope="module")
def model(checkpoint: Path) -> torch.nn.Module:
    return AutoModelForCausalLM.from_pretrained(checkpoint, dtype=torch.float32).eval()


def load(checkpoint: Path, setup: Setup, num_blocks: int = 64, **arguments: object) -> LLM:
    sizes = {"num_blocks": num_blocks, "block_size": setup.block_size}
    with kernels_on_cpu():
        return LLM(
            str(checkpoint), dtype="float32", skip_tokenizer_init=True, **setup.arguments, **sizes, **arguments
        )


def by_transformers(
    model: torch.nn.Module, prompt: list[int], params: BeamSearchParams
) -> list[tuple[list[int], float]]:
    """Tokens without the prompt and scores, the best first."""
    settings = GenerationConfig(
        max_new_tokens=params.max_tokens, num_beams=params.beam_width, num_return_sequences=params.beam_width,
        length_penalty=params.length_penalty, early_stopping="never", do_sample=False,
        eos_token_id=None if params.ignore_eos else EOS, pad_token_id=0, output_scores=True,
        return_dict_in_generate=True,
    )  # fmt: skip
    model.generation_config.eos_token_id = None
    input_ids = torch.tensor([prompt])
    output = model.generate(input_ids, attention_mask=torch.ones_like(input_ids), generation_config=settings)
    replies = [row[len(prompt) :] for row in output.sequences.tolist()]
    if not params.ignore_eos:
        replies = [row[: row.index(EOS) + 1] if EOS in row else row for row in replies]
    return list(zip(replies, output.sequences_scores.tolist(), strict=True))


def check(model: torch.nn.Module, prompt: list[int], params: BeamSearchParams, output: BeamSearchOutput) -> None:
    found = [(one.tokens[len(prompt) :], one.cum_logprob) for one in output.sequences]
    wanted = by_transformers(model, prompt, params)
    assert [tokens for tokens, _ in found] == [tokens for tokens, _ in wanted]
    scores = [total / len(tokens) ** params.length_penalty for tokens, total in found]
    assert scores == pytest.approx([score for _, score in wanted], abs=1e-4, rel=1e-4)
    assert all(one.tokens[: len(prompt)] == prompt for one in output.sequences)
    assert [one.finish_reason == "stop" for one in output.sequences] == [
        tokens[-1] == EOS and not params.ignore_eos for tokens, _ in found
    ]


def prompts() -> list[dict[str, list[int]]]:
    return [{"prompt_token_ids": prompt} for prompt in PROMPTS]


def test_texts_and_scores_are_those_of_transformers(checkpoint: Path, setup: Setup, model: torch.nn.Module) -> None:
    llm = load(checkpoint, setup)
    num_ended = 0
    for params in CASES:
        for prompt, output in zip(PROMPTS, llm.beam_search(prompts(), params), strict=True):
            check(model, prompt, params, output)
            num_ended += sum(one.finish_reason == "stop" for one in output.sequences)
    assert num_ended > 0
    assert llm.stats().blocks_in_use == 0


@pytest.mark.parametrize("mode", ["recompute", "swap"])
def test_the_same_under_preemption(checkpoint: Path, setup: Setup, model: torch.nn.Module, mode: str) -> None:
    params = BeamSearchParams(4, 16, ignore_eos=True)
    llm = load(checkpoint, setup, num_blocks=10 if setup.block_size == 4 else 7, preemption_mode=mode)
    for prompt, output in zip(PROMPTS, llm.beam_search(prompts(), params), strict=True):
        check(model, prompt, params, output)
    stats = llm.stats()
    assert stats.preemptions > 0
    assert (stats.swaps_out > 0) == (mode == "swap")
    assert (stats.blocks_in_use, stats.host_blocks_in_use) == (0, 0)


def test_each_of_several_answers_is_what_its_seed_gives_alone(checkpoint: Path, setup: Setup) -> None:
    llm = load(checkpoint, setup)
    [output] = llm.generate(prompts()[1], SamplingParams(n=4, seed=5, max_tokens=8, ignore_eos=True))
    alone = [
        llm.generate(prompts()[1], SamplingParams(seed=5 + i, max_tokens=8, ignore_eos=True))[0]
        .outputs[0]
        .token_ids
        for i in range(4)
    ]
    assert [one.token_ids for one in output.outputs] == alone
    assert len({tuple(reply) for reply in alone}) > 1
