"""A GGUF file of a mixture of experts gives the tokens of the model that it came from, however its experts are laid
out and in whatever blocks."""

import copy
from pathlib import Path
from typing import Any

import pytest
import torch

from pagedchat.errors import ModelError
from pagedchat.layers.experts import SparseMlp
from pagedchat.layers.quantized_experts import QuantizedExperts
from pagedchat.models import cpu_linear
from pagedchat.models.checkpoint_tensors import read_tensors
from pagedchat.models.config import describe_model
from pagedchat.models.filling import Filling
from pagedchat.models.loader import load_weights
from pagedchat.models.native import build
from pagedchat.models.native_model import NativeModel
from pagedchat.models.quantized.stacked import Stacked
from pagedchat.models.staged_copy import StagedCopies
from pagedchat.ops.quantized.weight import QuantizedWeight
from pagedchat.runtime.attention.dense import DenseAttention
from tests.helpers_models import check_greedy
from tests.models.families.tiny_families import CONFIGS, random_model, save
from tests.models.gguf.gguf_tensors import Experts
from tests.models.gguf.test_models import PROMPTS, replies
from tests.models.gguf.write_gguf import meant_by, write_gguf

pytest.importorskip("gguf", reason="the development group has it")

FAMILIES = ["mixtral", "qwen2_moe", "qwen3_moe", "olmoe", "gpt_oss"]
FEW_BITS = ["Q8_0", "Q5_0", "Q5_1", "Q4_0", "Q4_1", "Q4_K", "Q5_K", "Q6_K"]
WIDE = {
    "vocab_size": 256, "hidden_size": 256, "intermediate_size": 256, "moe_intermediate_size": 256,
    "shared_expert_intermediate_size": 512, "num_hidden_layers": 2, "head_dim": 64,
}  # fmt: skip
"""Blocks of 256 divide all of it."""
CPU = torch.device("cpu")


def save_mixture(folder: Path, family: str, *, wide: bool = False) -> Path:
    config = copy.deepcopy(CONFIGS[family])
    for field, value in WIDE.items() if wide else ():
        if hasattr(config, field):
            setattr(config, field, value)
    if family == "mixtral":
        config.sliding_window = None  # llama.cpp's Llamas have none
    if family == "gpt_oss" and hasattr(config, "swiglu_limit"):
        config.swiglu_limit = 7.0  # no file says it
    if family in ("gpt_oss", "qwen2_moe"):
        config.layer_types = config.layer_types[: config.num_hidden_layers]
    return save(folder, random_model(family, config, 0.1 if wide else 0.3))


def load(file: Path, **options: Any) -> NativeModel:
    model = load_weights(describe_model("m", file), attention="", dtype=torch.float32, device=CPU, **options)
    assert isinstance(model, NativeModel)
    return model


@torch.inference_mode()
def logits_of(model: NativeModel) -> torch.Tensor:
    places = torch.arange(len(PROMPTS[2]))
    return model(torch.tensor(PROMPTS[2]), places, DenseAttention(), places)


@pytest.mark.parametrize("family", FAMILIES)
def test_families(family: str, tmp_path: Path) -> None:
    checkpoint = save_mixture(tmp_path / "whole", family)
    file = write_gguf(tmp_path / "tiny.gguf", checkpoint)
    ours, theirs = describe_model("m", file), describe_model("m", checkpoint)
    assert ours.native is not None
    assert theirs.native is not None
    assert ours.native.mixture == theirs.native.mixture
    check_greedy(checkpoint, PROMPTS, replies(file))
    torch.testing.assert_close(logits_of(load(file)), logits_of(load(checkpoint)), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("experts", ["together", "apart"])
@pytest.mark.parametrize("family", ["mixtral", "qwen2_moe"])
@pytest.mark.parametrize("kind", ["F32", "Q4_0"])
def test_experts_laid_out_in_other_ways(family: str, experts: Experts, kind: str, tmp_path: Path) -> None:
    checkpoint = save_mixture(tmp_path / "whole", family, wide=True)
    usual = write_gguf(tmp_path / "usual.gguf", checkpoint, kind)
    other = write_gguf(tmp_path / "other.gguf", checkpoint, kind, experts=experts)
    assert torch.equal(logits_of(load(other)), logits_of(load(usual)))


@pytest.mark.parametrize(
    ("family", "kind"),
    [*(("qwen3_moe", kind) for kind in ["F16", "BF16", *FEW_BITS]),
     *((family, kind) for family in FAMILIES if family != "qwen3_moe" for kind in ("Q8_0", "Q4_K")),
     *((family, "MXFP4") for family in ("gpt_oss", "qwen3_moe"))],
)  # fmt: skip
def test_kinds(family: str, kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By torch: where inputs are rounded to 8 bits, another expert of a tiny model is soon as likely."""
    monkeypatch.setattr(cpu_linear, "cpu_kernels", lambda: None)
    checkpoint = save_mixture(tmp_path / "whole", family, wide=True)
    file = write_gguf(tmp_path / "wide.gguf", checkpoint, kind)
    meant = meant_by(tmp_path / "meant", checkpoint, kind)
    assert describe_model("m", file).stored_as == ("" if kind in ("F16", "BF16") else kind)
    given = replies(file)
    check_greedy(meant, PROMPTS, given)
    eight = [*PROMPTS, *([number, *PROMPTS[0]] for number in range(5))]
    assert replies(file, eight)[:3] == given  # the same in company
    if kind == "Q4_0":
        with pytest.raises(AssertionError):
            check_greedy(checkpoint, PROMPTS, given)


@pytest.mark.parametrize("family", FAMILIES)
def test_a_gpu_has_floats(family: str, tmp_path: Path) -> None:
    """What fills the places of a model there, tried on a CPU."""
    checkpoint = save_mixture(tmp_path / "whole", family, wide=True)
    kind = "MXFP4" if family == "gpt_oss" else "Q4_0"
    file = write_gguf(tmp_path / "wide.gguf", checkpoint, kind)
    model = build(describe_model("m", file).native)
    Filling("m", model, StagedCopies(CPU), lambda *_: None).fill(read_tensors([file]))
    meant = load(meant_by(tmp_path / "meant", checkpoint, kind))
    torch.testing.assert_close(logits_of(model), logits_of(meant), rtol=1e-4, atol=1e-4)
    as_floats = load(file, keeps_bits=False)
    assert torch.equal(logits_of(as_floats), logits_of(model))


def test_an_expert_has_its_own_few_bits_and_holds_no_others(tmp_path: Path) -> None:
    file = write_gguf(tmp_path / "m.gguf", save_mixture(tmp_path / "whole", "qwen3_moe", wide=True), "Q4_K")
    stacks = {name: tensor for name, tensor in read_tensors([file]) if name.endswith("_exps.weight")}
    assert all(isinstance(stack, Stacked) for stack in stacks.values())
    [mixture, _] = [module for module in load(file).modules() if isinstance(module, SparseMlp)]
    assert isinstance(mixture.experts, QuantizedExperts)
    for linear in [linear for weight in mixture.experts.separate for linear in weight.linears]:
        [part] = linear.parts
        assert isinstance(part, QuantizedWeight)
        assert part.bits == 4
        assert part.digits.untyped_storage().nbytes() == part.digits.nbytes


def test_windows_of_other_layers_are_refused(tmp_path: Path) -> None:
    other = {"gpt-oss.attention.sliding_window_pattern": 3}
    file = write_gguf(tmp_path / "m.gguf", save_mixture(tmp_path / "whole", "gpt_oss"), extra=other)
    with pytest.raises(ModelError, match="its windows are not those of every other layer"):
        load(file)


def test_floats_of_a_file_are_quantised_too(tmp_path: Path) -> None:
    file = write_gguf(tmp_path / "m.gguf", save_mixture(tmp_path / "whole", "mixtral", wide=True), "BF16")
    [mixture, _] = [module for module in load(file, quantization="int8").modules() if isinstance(module, SparseMlp)]
    assert isinstance(mixture.experts, QuantizedExperts)
