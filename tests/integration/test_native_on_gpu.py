"""On a GPU, in float32: our modules give the tokens that transformers gives, and a seed gives its text anywhere."""

import random
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch

from pagedchat import LLM, SamplingParams
from pagedchat.bench.random_checkpoint import LLAMA_1B, OPT_125M, write_checkpoint
from pagedchat.config import ModelImplementation
from tests.gpt_oss_bounds import bounds
from tests.helpers_models import check_greedy, check_same_draws, reference_replies

pytestmark = pytest.mark.gpu

VOCAB_SIZE, NUM_TOKENS = 512, 32
_SMALL = {"vocab_size": VOCAB_SIZE, "hidden_size": 256, "num_hidden_layers": 3, "num_attention_heads": 4}
_POSITIONS = {"max_position_embeddings": 256, "bos_token_id": 1, "eos_token_id": 2}
_EXPERTS = {
    "num_key_value_heads": 2, "intermediate_size": 512, "num_experts": 16, "num_experts_per_tok": 4,
    "moe_intermediate_size": 192,
}  # fmt: skip
_QWEN3 = {"model_type": "qwen3", "architectures": ["Qwen3ForCausalLM"], "head_dim": 128}
SHAPES: dict[str, dict[str, Any]] = {
    "opt": OPT_125M | _SMALL | _POSITIONS | {"ffn_dim": 1024, "word_embed_proj_dim": 256},
    "llama": LLAMA_1B | _SMALL | _POSITIONS | {"intermediate_size": 512, "num_key_value_heads": 2},
    "qwen3": LLAMA_1B | _SMALL | _POSITIONS | _QWEN3 | {"intermediate_size": 512, "num_key_value_heads": 2},
    "gemma3": _SMALL | _POSITIONS | {
        "model_type": "gemma3_text", "intermediate_size": 512, "num_key_value_heads": 2, "head_dim": 64,
        "sliding_window": 40, "sliding_window_pattern": 2, "query_pre_attn_scalar": 64,
        "tie_word_embeddings": False,
    },
    "mixtral": _SMALL | _POSITIONS | {
        "model_type": "mixtral", "intermediate_size": 384, "num_local_experts": 8, "num_experts_per_tok": 2,
        "num_key_value_heads": 2,
    },
    "qwen2_moe": _SMALL | _POSITIONS | _EXPERTS | {
        "model_type": "qwen2_moe", "shared_expert_intermediate_size": 320, "mlp_only_layers": [1],
    },
    "qwen3_moe": _SMALL | _POSITIONS | _EXPERTS | {
        "model_type": "qwen3_moe", "head_dim": 128, "norm_topk_prob": True,
    },
    "olmoe": _SMALL | _POSITIONS | {
        "model_type": "olmoe", "intermediate_size": 192, "num_experts": 12, "num_experts_per_tok": 3,
    },
    "gpt_oss": _SMALL | _POSITIONS | {
        "model_type": "gpt_oss", "intermediate_size": 192, "num_local_experts": 12, "num_experts_per_tok": 3,
        "num_key_value_heads": 2, "sliding_window": 40,
    } | bounds(swiglu_limit=2.0),
    "gpt_neox": _SMALL | _POSITIONS | {"model_type": "gpt_neox", "intermediate_size": 512},
}  # fmt: skip
"""Heads of 64 and 128, which the kernels have."""

_source = random.Random(7)
PROMPTS = [_source.choices(range(4, VOCAB_SIZE), k=_source.randint(1, 150)) for _ in range(64)]
DRAWN = [
    pytest.param({"top_p": 0.95, "top_k": 20}, id="top-k and top-p"),
    pytest.param({"top_k": 5, "temperature": 1.5}, id="hot"),
    pytest.param({"top_k": 20, "repetition_penalty": 1.2}, id="penalty"),
]


GREEDY_STD, DRAWN_STD = 0.2, 0.05
"""Of weights: greedy replies vary with large ones; small ones do not magnify rounding, which decides some draws."""


@pytest.fixture(params=SHAPES)
def shape(request: pytest.FixtureRequest) -> dict[str, Any]:
    return SHAPES[request.param]


def make(folder: Path, shape: dict[str, Any], std: float) -> Path:
    write_checkpoint(folder, shape, torch.float32, torch.device("cpu"), std=std)
    return folder


def load(checkpoint: Path, implementation: ModelImplementation, **arguments: Any) -> LLM:
    llm = LLM(
        str(checkpoint),
        device="cuda",
        dtype="float32",
        attention_backend="cuda",
        model_implementation=implementation,
        num_blocks=1024,
        skip_tokenizer_init=True,
        **arguments,
    )
    assert llm.info.attention_backend == "cuda"
    return llm


Check = Callable[[list[list[int]], list[list[int]], list[list[int]]], None]
"""Of prompts and their replies of two kinds: that both are right."""


def replies(
    llm: LLM, prompts: list[list[int]], params: SamplingParams | list[SamplingParams], check: Check
) -> list[list[int]]:
    """By whatever serves at once, and by the steps that are made for such batches."""
    both = []
    for _ in range(2):
        outputs = llm.generate([{"prompt_token_ids": prompt} for prompt in prompts], params, use_tqdm=False)
        both.append([output.outputs[0].token_ids for output in outputs])
        llm.prepare()
    check(prompts, both[0], both[1])
    return both[1]


def test_own_modules_those_of_transformers_and_its_generate_give_the_same_tokens(
    shape: dict[str, Any], tmp_path: Path
) -> None:
    checkpoint = make(tmp_path, shape, GREEDY_STD)
    greedy = SamplingParams(temperature=0, max_tokens=NUM_TOKENS, ignore_eos=True)
    prompts = PROMPTS[:32]
    expected = reference_replies(checkpoint, prompts, NUM_TOKENS)
    assert len({token for reply in expected for token in reply}) > 100

    wanted = {tuple(prompt): reply for prompt, reply in zip(prompts, expected, strict=True)}

    def check(given: list[list[int]], *found: list[list[int]]) -> None:
        for tokens in found:
            if tokens != [wanted[tuple(prompt)] for prompt in given]:  # two may be as likely
                check_greedy(checkpoint, given, tokens)

    native = load(checkpoint, "native")
    replies(native, prompts, greedy, check)
    replies(native, prompts, greedy, check)  # with the prompts cached
    for prompt in prompts[:4]:
        replies(native, [prompt], greedy, check)
    replies(load(checkpoint, "transformers"), prompts, greedy, check)


@pytest.mark.parametrize("settings", DRAWN)
def test_a_seed_gives_the_same_text_alone_and_among_63_others(
    shape: dict[str, Any], settings: dict[str, Any], tmp_path: Path
) -> None:
    checkpoint = make(tmp_path, shape, DRAWN_STD)
    llm = load(checkpoint, "native", enable_prefix_caching=False)
    params = [
        SamplingParams(**{"temperature": 0.9, **settings}, max_tokens=NUM_TOKENS, ignore_eos=True, seed=seed)
        for seed in range(64)
    ]
    check = partial(check_same_draws, checkpoint, settings["top_k"])
    together = replies(llm, PROMPTS, params, check)
    assert len({tuple(reply) for reply in together}) == 64
    for number in (0, 17, 40, 63):
        check([PROMPTS[number]], replies(llm, [PROMPTS[number]], params[number], check), [together[number]])
    some = slice(20, 30)
    check(PROMPTS[some], replies(llm, PROMPTS[some], params[some], check), together[some])
