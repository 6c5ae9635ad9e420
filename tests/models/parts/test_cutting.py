"""A decoder cut for several ranks says what the whole one says; what cannot be cut is refused in one sentence."""

import copy
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from pagedchat.errors import InvalidValueError, ModelError
from pagedchat.models.config import describe_model
from pagedchat.models.description import ModelDescription
from pagedchat.models.loader import load_weights
from pagedchat.models.native_model import NativeModel
from pagedchat.models.parts.cutting import cut_for_rank, objection_to_ranks
from pagedchat.models.quantized.forms import Quantization
from pagedchat.runtime.attention.dense import DenseAttention
from tests.models.families.tiny_families import CONFIGS, random_model, save, save_tiny, wide_model
from tests.models.gguf.gguf_tensors import Experts
from tests.models.gguf.write_gguf import write_gguf
from tests.models.quantized.test_mxfp4 import as_packed
from tests.models.quantized.test_stored import save_stored
from tests.rank_threads import RankThreads

FAMILIES = [
    "opt", "opt_after", "llama_biases", "llama_yarn", "qwen3", "granite", "gemma2", "gemma3", "phi", "phi3", "gpt2",
    "gptj", "gpt_neox", "olmo", "stablelm_parallel", "cohere_normed", "nemotron", "falcon", "falcon_grouped",
    "falcon_slopes", "bloom", "mpt", "olmo2", "olmo3", "mixtral", "qwen2_moe", "qwen2_moe_some_sparse",
    "qwen3_moe_some_sparse", "olmoe", "gpt_oss", "gpt_oss_no_biases",
]  # fmt: skip
NOT_CUT = {
    "mpt_three_heads": "3 heads",
}
TEXT = torch.tensor([5, 90, 7, 33, 64, 2, 95, 1, 0, 48])
CPU = torch.device("cpu")


def describe(folder: Path) -> ModelDescription:
    return describe_model(str(folder), folder)


def load(description: ModelDescription, **arguments: object) -> NativeModel:
    model = load_weights(description, attention="", dtype=torch.float32, device=CPU, **arguments)
    assert isinstance(model, NativeModel)
    return model


@torch.inference_mode()
def logits_of(model: NativeModel) -> torch.Tensor:
    every = torch.arange(len(TEXT))
    return model(TEXT, every, DenseAttention(), every)


def of_ranks(description: ModelDescription, size: int, **arguments: object) -> list[torch.Tensor]:
    return RankThreads(size).run(
        lambda ranks: logits_of(load(cut_for_rank(description, ranks.rank, size), ranks=ranks, **arguments))
    )


@pytest.fixture
def checkpoint(tmp_path: Path) -> Callable[[str], Path]:
    return lambda family: save_tiny(tmp_path / family, family)


@pytest.mark.parametrize("size", [2, 4])
@pytest.mark.parametrize("family", FAMILIES)
def test_all_ranks_say_what_the_whole_model_says(family: str, size: int, checkpoint: Callable[[str], Path]) -> None:
    description = describe(checkpoint(family))
    whole = logits_of(load(description))
    first, *others = of_ranks(description, size)
    torch.testing.assert_close(first, whole, rtol=1e-4, atol=1e-5)
    assert all(torch.equal(first, other) for other in others)


@pytest.mark.parametrize("quantization", ["int8", "int4"])
def test_quantised_weights_are_cut_between_groups(quantization: Quantization, tmp_path: Path) -> None:
    description = describe(save(tmp_path, wide_model("llama_biases")))
    first, second = of_ranks(description, 2, quantization=quantization)
    whole = logits_of(load(description, quantization=quantization))
    assert (first - whole).norm() / whole.norm() < 0.02
    assert torch.equal(first, second)


@pytest.mark.parametrize("kind", ["Q8_0", "Q4_K"])
def test_stored_few_bits_are_cut_as_they_are(kind: str, tmp_path: Path) -> None:
    pytest.importorskip("gguf", reason="the development group has it")
    description = describe(write_gguf(tmp_path / "m.gguf", save(tmp_path / "whole", wide_model("llama")), kind))
    first, second = of_ranks(description, 2)
    whole = logits_of(load(description))
    assert (first - whole).norm() / whole.norm() < 1e-4
    assert torch.equal(first, second)


@pytest.mark.parametrize("experts", ["stacked", "together", "apart"])
@pytest.mark.parametrize("kind", ["F32", "Q8_0", "Q4_1"])
def test_experts_of_a_file_are_cut_as_they_are(kind: str, experts: Experts, tmp_path: Path) -> None:
    pytest.importorskip("gguf", reason="the development group has it")
    config = copy.deepcopy(CONFIGS["qwen2_moe"])
    config.moe_intermediate_size, config.shared_expert_intermediate_size, config.intermediate_size = 64, 64, 64
    config.hidden_size, config.head_dim = 64, 16
    whole = save(tmp_path / "whole", random_model("qwen2_moe", config, 0.2))
    description = describe(write_gguf(tmp_path / "m.gguf", whole, kind, experts=experts))
    first, second = of_ranks(description, 2)
    meant = logits_of(load(description))
    assert (first - meant).norm() / meant.norm() < 1e-4
    assert torch.equal(first, second)


@pytest.mark.parametrize("kind", ["F32", "MXFP4"])
def test_experts_with_biases_are_cut_as_they_are(kind: str, tmp_path: Path) -> None:
    pytest.importorskip("gguf", reason="the development group has it")
    config = copy.deepcopy(CONFIGS["gpt_oss"])
    config.intermediate_size, config.hidden_size, config.head_dim = 64, 64, 16
    whole = save(tmp_path / "whole", random_model("gpt_oss", config, 0.2))
    description = describe(write_gguf(tmp_path / "m.gguf", whole, kind))
    first, second = of_ranks(description, 2)
    meant = logits_of(load(description))
    assert (first - meant).norm() / meant.norm() < 1e-4
    assert torch.equal(first, second)


@pytest.mark.parametrize("experts", ["stacked", "together", "apart"])
def test_experts_whose_groups_no_cut_divides_are_one_sentence(experts: Experts, tmp_path: Path) -> None:
    pytest.importorskip("gguf", reason="the development group has it")
    config = copy.deepcopy(CONFIGS["olmoe"])
    config.intermediate_size, config.hidden_size = 96, 64
    whole = save(tmp_path / "whole", random_model("olmoe", config, 0.3))
    description = describe(write_gguf(tmp_path / "m.gguf", whole, "Q8_0", experts=experts))
    with pytest.raises(InvalidValueError, match=r"tensor_parallel_size .*: in blk.* no whole groups of 32\."):
        of_ranks(description, 2)


def test_groups_that_no_cut_divides_are_one_sentence(tmp_path: Path) -> None:
    pytest.importorskip("gguf", reason="the development group has it")
    config = copy.deepcopy(CONFIGS["llama"])
    config.hidden_size, config.intermediate_size = 96, 64
    config.num_attention_heads, config.head_dim = 6, 16
    whole = save(tmp_path / "whole", random_model("llama", config, 0.3))
    description = describe(write_gguf(tmp_path / "m.gguf", whole, "Q8_0"))
    with pytest.raises(InvalidValueError, match=r"tensor_parallel_size .*: in .* no whole groups of 32\."):
        of_ranks(description, 2)


@pytest.mark.parametrize("kind", ["gptq", "gptq_8", "awq", "packed_zeros", "integers", "fp8_row", "fp8_one"])
def test_stored_few_bits_of_other_forms_are_cut_as_they_are(kind: str, tmp_path: Path) -> None:
    config = copy.deepcopy(CONFIGS["llama"])
    config.intermediate_size = 64
    stored, meant = save_stored(tmp_path, kind, save(tmp_path / "plain", random_model("llama", config, 0.3)))
    description = describe(stored)
    first, second = of_ranks(description, 2)
    whole = logits_of(load(description))
    exact = logits_of(load(describe(meant)))
    # 8-bit floats are quantised once more, each part of a row for itself.
    allowed = 0.1 * exact.norm() if kind.startswith("fp8") else 1e-3 * whole.norm()
    assert (first - whole).norm() < allowed
    assert torch.equal(first, second)


@pytest.mark.parametrize("kind", ["gptq", "awq", "packed"])
def test_groups_of_other_forms_that_no_cut_divides_are_one_sentence(kind: str, tmp_path: Path) -> None:
    stored, _ = save_stored(tmp_path, kind)
    words = r"tensor_parallel_size .*: in .*down_proj\.weight, elements \d+ to \d+ are no whole groups of 16\."
    with pytest.raises(InvalidValueError, match=words):
        of_ranks(describe(stored), 2)


def test_experts_that_are_stored_in_mxfp4_are_cut(tmp_path: Path) -> None:
    config = copy.deepcopy(CONFIGS["gpt_oss"])
    config.hidden_size = config.intermediate_size = 64
    plain = save(tmp_path / "plain", random_model("gpt_oss", config, 0.3))
    save_file(as_packed(plain, tmp_path / "packed"), tmp_path / "packed" / "model.safetensors", {"format": "pt"})
    description = describe(tmp_path / "packed")
    whole = logits_of(load(description))
    for size in (2, 4):
        first, *others = of_ranks(description, size)
        torch.testing.assert_close(first, whole, rtol=1e-4, atol=1e-5)
        assert all(torch.equal(first, other) for other in others)


@pytest.mark.parametrize("family", NOT_CUT)
def test_what_cannot_be_cut_is_one_sentence(family: str, checkpoint: Callable[[str], Path]) -> None:
    with pytest.raises(InvalidValueError, match=f"tensor_parallel_size is 2.*{NOT_CUT[family]}"):
        cut_for_rank(describe(checkpoint(family)), 0, 2)


def test_kv_heads_are_cut_or_shared_by_whole_ranks(checkpoint: Callable[[str], Path]) -> None:
    config = describe(checkpoint("llama")).native
    assert config is not None
    assert config.heads.num_kv_heads == 2
    assert objection_to_ranks(config, 4) == ""
    assert "4 heads" in objection_to_ranks(config, 3)
    heads = [cut_for_rank(describe(checkpoint("llama")), rank, 4) for rank in range(4)]
    firsts = [each.native.first_kv_head for each in heads if each.native is not None]
    assert firsts == [0, 0, 1, 1]


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({}, ""),
        ({"moe_intermediate_size": 26}, "the middle of its experts is 26 wide"),
        ({"shared_expert_intermediate_size": 42}, "the middle of the expert that all tokens share is 42 wide"),
        ({"intermediate_size": 50}, ""),
        ({"intermediate_size": 50, "mlp_only_layers": [0]}, "the middle of its feed-forward is 50 wide"),
    ],
)
def test_experts_are_cut_where_they_can_be(change: dict[str, object], words: str, tmp_path: Path) -> None:
    config = copy.deepcopy(CONFIGS["qwen2_moe"])
    config.update(change)
    (tmp_path / "config.json").write_text(config.to_json_string(use_diff=False))
    described = describe(tmp_path).native
    assert described is not None
    assert objection_to_ranks(described, 4) == words


def test_a_tensor_of_another_shape_is_named(checkpoint: Callable[[str], Path]) -> None:
    folder = checkpoint("llama")
    config = (folder / "config.json").read_text()
    (folder / "config.json").write_text(config.replace('"intermediate_size": 48', '"intermediate_size": 44'))
    with pytest.raises(ModelError, match=r"other shapes than its config says: model\.layers\.0\.mlp"):
        of_ranks(describe(folder), 2)
