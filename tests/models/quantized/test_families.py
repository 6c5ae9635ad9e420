"""Quantised models of every family say what transformers says of the weights that their few bits stand for."""

from pathlib import Path

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pagedchat import LLM, SamplingParams
from pagedchat.config import QuantizationName
from pagedchat.errors import InvalidValueError
from pagedchat.models import cpu_linear
from tests.helpers_models import OF_8_BITS, check_greedy
from tests.models.families.tiny_families import CONFIGS, save_tiny
from tests.models.quantized.dequantised import dequantised_checkpoint

INDIVISIBLE = (
    "mpt_three_heads", "qwen2_moe", "qwen2_moe_some_sparse", "qwen3_moe", "qwen3_moe_some_sparse",
)  # fmt: skip
"""They have products of 24 inputs, which no group of 4 bits divides."""
PROMPTS = [[(11 * i) % 90 + 3 for i in range(length)] for length in (3, 20, 37)]
GREEDY = SamplingParams(temperature=0, max_tokens=12, ignore_eos=True)


def engine(checkpoint: Path, quantization: QuantizationName, *, batch_invariant: bool = False) -> LLM:
    return LLM(
        str(checkpoint), device="cpu", dtype="float32", num_blocks=256, block_size=4, max_num_batched_tokens=13,
        skip_tokenizer_init=True, quantization=quantization, batch_invariant=batch_invariant,
    )  # fmt: skip


def replies(llm: LLM, prompts: list[list[int]]) -> list[list[int]]:
    outputs = llm.generate([{"prompt_token_ids": prompt} for prompt in prompts], GREEDY, use_tqdm=False)
    return [output.outputs[0].token_ids for output in outputs]


WAYS: list[list[tuple[QuantizationName, str]]] = [
    [("int8", "kernels"), ("int4", "torch")], [("int4", "kernels"), ("int8", "torch")],
]  # fmt: skip
"""Families take them in turns."""
EXACT: list[tuple[QuantizationName, str]] = [("int8", "torch"), ("int4", "torch")]
MIXTURES = [name for name, config in CONFIGS.items() if hasattr(config, "num_experts_per_tok")]
"""By torch: where inputs are rounded to 8 bits, another expert of a tiny model is soon as likely."""


@pytest.mark.parametrize(
    ("family", "quantization", "by"),
    [
        (family, *way)
        for number, family in enumerate(CONFIGS)
        for way in (EXACT if family in MIXTURES else WAYS[number % 2])
        if way[0] == "int8" or family not in INDIVISIBLE
    ],
)
def test_tokens_are_those_of_the_dequantised_weights(
    family: str, quantization: QuantizationName, by: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if by == "torch":
        monkeypatch.setattr(cpu_linear, "cpu_kernels", lambda: None)
    checkpoint = save_tiny(tmp_path / "whole", family)
    (tmp_path / "few").mkdir()
    meant = dequantised_checkpoint(tmp_path / "few", checkpoint, quantization)
    llm = engine(checkpoint, quantization)
    assert llm.info.quantization == quantization
    given_replies = replies(llm, PROMPTS)
    check_greedy(meant, PROMPTS, given_replies, OF_8_BITS if by == "kernels" else 1e-4)
    if by == "torch" and quantization == "int4" and family in ("llama", "opt", "gpt2"):
        with pytest.raises(AssertionError):  # the weights as they were say something else
            check_greedy(checkpoint, PROMPTS, given_replies)


@pytest.fixture(scope="module", params=["int8", "int4"])
def llm(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> LLM:
    return engine(save_tiny(tmp_path_factory.mktemp("llama"), "llama"), request.param)


@settings(max_examples=12, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.lists(st.integers(3, 90), min_size=1, max_size=30), min_size=8, max_size=8))
def test_a_text_is_the_same_alone_and_among_seven_others(llm: LLM, prompts: list[list[int]]) -> None:
    assert replies(llm, prompts[:1]) == replies(llm, prompts)[:1]


@pytest.mark.parametrize("quantization", ["int8", "int4"])
def test_bit_for_bit_where_that_is_asked_for(quantization: QuantizationName, tmp_path: Path) -> None:
    llm = engine(save_tiny(tmp_path, "qwen2"), quantization, batch_invariant=True)
    assert replies(llm, PROMPTS[:1]) == replies(llm, [*PROMPTS, *PROMPTS, *PROMPTS][:8])[:1]


def test_a_width_that_no_group_divides_is_refused(tmp_path: Path) -> None:
    checkpoint = save_tiny(tmp_path, INDIVISIBLE[0])
    with pytest.raises(InvalidValueError, match=r"has a product of 24 inputs.*Use --quantize int8 or none"):
        engine(checkpoint, "int4")
    assert engine(checkpoint, "int8").info.quantization == "int8"


def test_models_of_transformers_are_refused(tmp_path: Path) -> None:
    checkpoint = save_tiny(tmp_path, "llama")
    with pytest.raises(InvalidValueError, match=r"transformers runs .*, whose layers are not ours"):
        LLM(str(checkpoint), device="cpu", model_implementation="transformers", quantization="int8",
            skip_tokenizer_init=True)  # fmt: skip


def test_numbers_that_are_none_are_refused_by_name(tmp_path: Path) -> None:
    from safetensors.torch import load_file, save_file

    from pagedchat.errors import ModelError

    checkpoint = save_tiny(tmp_path, "llama")
    tensors = load_file(checkpoint / "model.safetensors")
    tensors["model.layers.1.mlp.up_proj.weight"][3, 4] = torch.nan
    save_file(tensors, checkpoint / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(
        ModelError, match=r"cannot be quantised: in model.layers.1.mlp.up_proj.weight, it has numbers"
    ):
        engine(checkpoint, "int4")
