"""A GGUF file of a tiny model gives the tokens of the model that it came from, family by family, kind by kind."""

import copy
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from transformers import LlamaConfig

from pagedchat import LLM, SamplingParams
from pagedchat.models import cpu_linear
from pagedchat.models.checkpoint_tensors import read_tensors
from pagedchat.models.config import describe_model
from pagedchat.models.filling import Filling
from pagedchat.models.native import build
from pagedchat.models.staged_copy import StagedCopies
from pagedchat.runtime.attention.dense import DenseAttention
from tests.helpers_models import OF_8_BITS, check_greedy
from tests.models.families.tiny_families import random_model, save, save_tiny
from tests.models.gguf.write_gguf import meant_by, write_gguf

pytest.importorskip("gguf", reason="the development group has it")

PROMPTS = [[(11 * i) % 90 + 3 for i in range(length)] for length in (3, 20, 37)]
GREEDY = SamplingParams(temperature=0, max_tokens=12, ignore_eos=True)
FAMILIES = ["llama", "llama_biases", "qwen2", "qwen3", "gemma", "gemma2", "gemma3", "phi", "phi3"]
EXTRA: dict[str, dict[str, Any]] = {
    "gemma3": {"gemma3.attention.sliding_window_pattern": 2},
}
LARGE = LlamaConfig(
    vocab_size=256, hidden_size=256, intermediate_size=512, num_hidden_layers=2, num_attention_heads=4,
    num_key_value_heads=2, max_position_embeddings=128, bos_token_id=1, eos_token_id=2, pad_token_id=0,
    tie_word_embeddings=True,
)  # fmt: skip


def replies(file: Path, prompts: list[list[int]] = PROMPTS, **options: Any) -> list[list[int]]:
    llm = LLM(
        str(file), device="cpu", num_blocks=256, block_size=4, max_num_batched_tokens=13, skip_tokenizer_init=True,
        **options,
    )  # fmt: skip
    outputs = llm.generate([{"prompt_token_ids": prompt} for prompt in prompts], GREEDY, use_tqdm=False)
    return [output.outputs[0].token_ids for output in outputs]


@pytest.mark.parametrize("family", FAMILIES)
def test_families(family: str, tmp_path: Path) -> None:
    checkpoint = save_tiny(tmp_path / "whole", family)
    file = write_gguf(tmp_path / "tiny.gguf", checkpoint, extra=EXTRA.get(family))
    ours, theirs = describe_model("m", file), describe_model("m", checkpoint)
    for field in ("num_layers", "num_heads", "num_kv_heads", "head_dim", "vocab_size", "max_model_len"):
        assert getattr(ours, field) == getattr(theirs, field), field
    assert ours.eos_token_ids == theirs.eos_token_ids
    check_greedy(checkpoint, PROMPTS, replies(file))


def test_frequencies_that_are_a_tensor(tmp_path: Path) -> None:
    """Llama 3.1's files have the factors that its pairs are slowed down by, worked out."""
    checkpoint = save_tiny(tmp_path / "whole", "llama3")
    scaled = describe_model("m", checkpoint).native
    assert scaled is not None
    assert scaled.rotary is not None
    turning = scaled.rotary.frequencies(8)
    plain = 1 / 5000.0 ** (np.arange(0, 8, 2) / 8)
    factors = {"rope_freqs.weight": (plain / turning.numpy()).astype(np.float32)}
    file = write_gguf(tmp_path / "tiny.gguf", checkpoint, extra=factors)
    check_greedy(checkpoint, PROMPTS, replies(file))
    with pytest.raises(AssertionError):
        check_greedy(checkpoint, PROMPTS, replies(write_gguf(tmp_path / "without.gguf", checkpoint)))


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Of widths that blocks of 256 divide."""
    return save(tmp_path_factory.mktemp("large"), random_model("llama", copy.deepcopy(LARGE), 0.1))


@pytest.mark.parametrize("by", ["kernels", "torch"])
@pytest.mark.parametrize("kind", ["F16", "BF16", "Q8_0", "Q5_0", "Q5_1", "Q4_0", "Q4_1", "Q4_K", "Q5_K", "Q6_K"])
def test_kinds(large: Path, kind: str, by: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if by == "torch":
        monkeypatch.setattr(cpu_linear, "cpu_kernels", lambda: None)
    file = write_gguf(tmp_path / "large.gguf", large, kind)
    meant = meant_by(tmp_path / "meant", large, kind)
    found = describe_model("m", file)
    assert found.stored_as == ("" if kind in ("F16", "BF16") else kind)
    given = replies(file)
    rounds = by == "kernels" and found.stored_as
    check_greedy(meant, PROMPTS, given, OF_8_BITS if rounds else 1e-4)
    eight = [*PROMPTS, *([number, *PROMPTS[0]] for number in range(5))]
    assert replies(file, eight)[:3] == given  # the same in company
    if by == "torch" and kind in ("Q4_0", "Q4_K"):
        with pytest.raises(AssertionError):
            check_greedy(large, PROMPTS, given)


def test_a_gpu_has_floats(large: Path, tmp_path: Path) -> None:
    """What fills the places of a model there, tried on a CPU."""
    file = write_gguf(tmp_path / "large.gguf", large, "Q4_0")
    config = describe_model("m", file).native
    assert config is not None
    said = []
    for folder, description in ((file, config), (meant_by(tmp_path / "meant", large, "Q4_0"), None)):
        model = build(description or describe_model("m", folder).native)
        Filling("m", model, StagedCopies(torch.device("cpu")), lambda *_: None).fill(
            read_tensors([folder if folder == file else folder / "model.safetensors"])
        )
        places = torch.arange(len(PROMPTS[2]))
        with torch.inference_mode():
            said.append(model(torch.tensor(PROMPTS[2]), places, DenseAttention(), places))
    torch.testing.assert_close(said[0], said[1], rtol=1e-4, atol=1e-4)


def test_floats_of_a_file_are_quantised_too(large: Path, tmp_path: Path) -> None:
    file = write_gguf(tmp_path / "large.gguf", large, "BF16")
    llm = LLM(str(file), device="cpu", num_blocks=16, skip_tokenizer_init=True, quantization="int4")
    assert llm.info.quantization == "int4"
