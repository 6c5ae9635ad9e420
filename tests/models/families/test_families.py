"""Every family on our own decoder is held against transformers: the same description, logits and tokens."""

from dataclasses import fields
from pathlib import Path

import pytest
import torch
from transformers import AutoModelForCausalLM

from pagedchat import LLM, SamplingParams
from pagedchat.models.config import describe_model
from pagedchat.models.decoder import Decoder
from pagedchat.models.description import ModelDescription
from pagedchat.models.loader import load_weights
from pagedchat.runtime.attention.dense import DenseAttention
from tests.helpers_models import check_greedy
from tests.models.families.tiny_families import CONFIGS, ONLY_OURS, SLOPES_TWICE, save_tiny

TOKENS = [(11 * i) % 90 + 3 for i in range(50)]
PROMPTS = [TOKENS[:length] for length in (3, 20, 37)]
GREEDY = SamplingParams(temperature=0, max_tokens=16, ignore_eos=True)


@pytest.fixture(scope="module", params=CONFIGS)
def checkpoint(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_tiny(tmp_path_factory.mktemp(request.param), request.param)


def transformers_logits(checkpoint: Path, dtype: torch.dtype) -> torch.Tensor:
    """`[num_tokens, vocab_size]`, float32, from the model's own attention."""
    attention = "sdpa" if checkpoint.name.rstrip("0123456789") in SLOPES_TWICE else "eager"
    model = AutoModelForCausalLM.from_pretrained(checkpoint, dtype=dtype, attn_implementation=attention).eval()
    return model(torch.tensor([TOKENS]), use_cache=False).logits[0].float()


def our_logits(checkpoint: Path, dtype: torch.dtype) -> torch.Tensor:
    """The same from ours."""
    description = describe_model("tiny", checkpoint)
    model = load_weights(description, attention="", dtype=dtype, device=torch.device("cpu"))
    assert isinstance(model, Decoder)
    positions = torch.arange(len(TOKENS))
    return model(torch.tensor(TOKENS), positions, DenseAttention(), positions).float()


def test_the_description_is_that_of_transformers(checkpoint: Path) -> None:
    ours = describe_model("m", checkpoint)
    assert ours.native is not None
    if ours.model_type in ONLY_OURS:
        return
    theirs = describe_model("m", checkpoint, "transformers")
    for field in fields(ModelDescription):
        if field.name not in ("config", "native"):
            assert getattr(ours, field.name) == getattr(theirs, field.name), field.name


@torch.inference_mode()
def test_logits(checkpoint: Path) -> None:
    exact, ours = transformers_logits(checkpoint, torch.float32), our_logits(checkpoint, torch.float32)
    torch.testing.assert_close(ours, exact, rtol=1e-4, atol=1e-4)


@torch.inference_mode()
def test_rounding_of_16_bits_costs_no_more(checkpoint: Path) -> None:
    exact = transformers_logits(checkpoint, torch.float32)
    error = typical(our_logits(checkpoint, torch.bfloat16) - exact)
    assert 0 < error <= 1.5 * typical(transformers_logits(checkpoint, torch.bfloat16) - exact)


def typical(differences: torch.Tensor) -> torch.Tensor:
    """Of tokens: the mean by square would be that of a few, which rounding has given other experts."""
    return differences.norm(dim=-1).median()


def test_tokens_through_the_engine(checkpoint: Path) -> None:
    llm = LLM(
        str(checkpoint), device="cpu", dtype="float32", num_blocks=64, block_size=4, max_num_batched_tokens=13,
        skip_tokenizer_init=True, model_implementation="native",
    )  # fmt: skip
    outputs = llm.generate([{"prompt_token_ids": prompt} for prompt in PROMPTS], GREEDY, use_tqdm=False)
    replies = [output.outputs[0].token_ids for output in outputs]
    assert all(len(reply) == 16 for reply in replies)
    check_greedy(checkpoint, PROMPTS, replies)
    assert len({tuple(tokens) for tokens in replies}) == len(PROMPTS)
