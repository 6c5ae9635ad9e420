"""Models of few bits on a GPU: in which forms, and the tokens of the weights that their bits stand for."""

from pathlib import Path

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from transformers import AutoModelForCausalLM, LlamaConfig

from pagedchat import LLM, SamplingParams
from pagedchat.config import QuantizationName
from pagedchat.errors import InvalidValueError
from pagedchat.layers.by_torch import by_torch
from pagedchat.layers.experts import MixtureConfig, SparseMlp
from pagedchat.layers.few_bits_linear import FewBitsLinear, settle, weight_of
from pagedchat.layers.linear import Linear
from pagedchat.layers.quantized_experts import QuantizedExperts
from pagedchat.layers.quantized_linear import QuantizedLinear
from pagedchat.models import native_loader
from pagedchat.models.checkpoint_tensors import read_tensors
from pagedchat.models.config import describe_model
from pagedchat.models.native_model import NativeModel
from pagedchat.models.quantized.filling import QuantizedFilling
from pagedchat.models.quantized.forms import Quantization, forms_on_gpu
from pagedchat.models.quantized.mxfp4 import with_packed
from pagedchat.models.quantized.packing import Packing
from pagedchat.models.quantized.shell import quantized_shell
from pagedchat.models.quantized.unpacking import unpacked
from pagedchat.models.staged_copy import StagedCopies
from pagedchat.ops.experts.stacked_weight import ByTorch, StackedWeight
from pagedchat.ops.quantized.quantize import quantize
from pagedchat.ops.quantized.weight import QuantizedWeight
from pagedchat.runtime.attention.dense import DenseAttention
from tests.helpers_models import KERNEL_MIXTURES, VOCAB_SIZE, check_greedy, make_checkpoint
from tests.models.families.tiny_families import save_tiny
from tests.models.quantized import test_stored
from tests.models.quantized.dequantised import dequantised_checkpoint
from tests.models.quantized.test_stored import KINDS, floats, save_mixture, save_stored
from tests.runtime.drive import eager_of

QUANTIZATIONS: list[Quantization] = ["int8", "int4", "fp8"]
PROMPTS = [[(11 * i) % 90 + 3 for i in range(length)] for length in (3, 20, 37)]
GREEDY = SamplingParams(temperature=0, max_tokens=12, ignore_eos=True)
OF_16_BITS = 0.02
"""What rounding to 16 bits may move logits of tiny models by, as a part of the largest one."""
CPU = torch.device("cpu")


def save_wide(folder: Path) -> Path:
    """Of widths in which products have groups of 64 and 128, and heads that kernels take."""
    torch.manual_seed(1)
    config = LlamaConfig(
        vocab_size=VOCAB_SIZE, hidden_size=128, intermediate_size=256, num_hidden_layers=2, num_attention_heads=2,
        num_key_value_heads=1, max_position_embeddings=128, tie_word_embeddings=False,
    )  # fmt: skip
    model = AutoModelForCausalLM.from_config(config)
    for parameter in model.parameters():
        if parameter.dim() > 1:
            torch.nn.init.normal_(parameter, std=0.2)
    model.save_pretrained(folder)
    return folder


def loaded_as_on_gpu(checkpoint: Path, quantization: Quantization) -> tuple[NativeModel, list[str]]:
    """By torch, on a CPU."""
    config = describe_model("m", checkpoint).native
    assert config is not None
    model = quantized_shell(config, torch.float32, CPU, stores_table=False)
    wanted = forms_on_gpu(model, quantization)
    filling = QuantizedFilling("m", model, StagedCopies(CPU), lambda *_: None, torch.float32, wanted)
    filling.fill(with_packed(read_tensors([checkpoint / "model.safetensors"])))
    return model, settle(model, model.head, torch.float32)


@torch.inference_mode()
def logits(model: NativeModel) -> torch.Tensor:
    places = torch.arange(len(PROMPTS[2]))
    said: torch.Tensor = model(torch.tensor(PROMPTS[2]), places, DenseAttention(), places)
    return said


@pytest.mark.parametrize("quantization", QUANTIZATIONS)
@pytest.mark.parametrize(
    "family", ["llama_64", "phi_64", "opt_64", "gpt2_64", "gemma2_256", "opt_350m", *KERNEL_MIXTURES]
)
def test_loading_gives_what_the_bits_stand_for(family: str, quantization: Quantization, tmp_path: Path) -> None:
    checkpoint = make_checkpoint(tmp_path / "whole", family)
    (tmp_path / "few").mkdir()
    meant = describe_model("m", dequantised_checkpoint(tmp_path / "few", checkpoint, quantization, on_gpu=True))
    model, made_whole = loaded_as_on_gpu(checkpoint, quantization)
    assert made_whole == []
    assert any(isinstance(module, FewBitsLinear) for module in model.modules())
    assert not any(isinstance(module, QuantizedLinear) for module in model.modules())
    files = [tmp_path / "few" / "model.safetensors"]
    assert meant.native is not None
    wanted = native_loader.load_native(
        "m", meant.native, files, dtype=torch.float32, device=CPU, on_progress=lambda *_: None
    )
    torch.testing.assert_close(logits(model), logits(wanted), rtol=1e-4, atol=1e-4)


def test_experts_are_stacked_and_routers_stay_whole(tmp_path: Path) -> None:
    model, _ = loaded_as_on_gpu(make_checkpoint(tmp_path, "qwen2_moe_64"), "int4")
    mixture = model.get_submodule("layers.1.mlp")
    assert isinstance(mixture, SparseMlp)
    for weight in (mixture.experts.gate_up, mixture.experts.down):
        assert isinstance(weight, StackedWeight)
        assert weight.form.kind == "int4"
        assert weight.form.has_minimums
    for kept in (mixture.router, mixture.shared_gate):
        assert isinstance(kept, Linear)
        assert not isinstance(kept, FewBitsLinear)
    with by_torch(model):
        assert isinstance(mixture.experts.down, ByTorch)


@pytest.mark.parametrize("kind", ["several forms", "a form that no kernel takes", "floats"])
def test_experts_that_no_kernel_takes_become_floats_and_are_named(kind: str) -> None:
    config = MixtureConfig(num_experts=3, per_token=2, width=32, renormalised=True)
    experts = QuantizedExperts(config, 64)
    meant: list[list[torch.Tensor]] = [[], []]
    for index, weight in enumerate(experts.separate):
        for expert, linear in enumerate(weight.linears):
            values = torch.randn(linear.out_features, linear.in_features)
            group = 8 if kind == "a form that no kernel takes" else 32 if expert else 16
            part = values if kind == "floats" else quantize(values, 8, group)
            linear.fill(0, part)
            meant[index].append(part if isinstance(part, torch.Tensor) else part.dequantized())
    model = torch.nn.Module()
    model.add_module("experts", experts)
    assert settle(model, torch.nn.Module(), torch.float32) == ([] if kind == "floats" else ["experts"])
    for found, wanted in zip((experts.gate_up, experts.down), meant, strict=True):
        assert isinstance(found, torch.Tensor)
        assert torch.equal(found, torch.stack(wanted))


def test_values_and_the_head_have_8_bits_where_layers_have_4(tmp_path: Path) -> None:
    model, _ = loaded_as_on_gpu(save_wide(tmp_path), "int4")
    layer = model.get_submodule("layers.0")
    forms = {
        name: [(len(part), str(part.form)) for part in module.parts]
        for name, module in layer.named_modules()
        if isinstance(module, FewBitsLinear)
    }
    of_64, of_128 = "int4, groups of 64 with minimums", "int4, groups of 128 with minimums"
    assert forms == {
        "attention.qkv": [(192, of_64), (64, "int8, a scale a row")],
        "attention.out": [(128, of_64)],
        "mlp.gate_up": [(512, of_64)],
        "mlp.down": [(128, of_128)],
    }
    head = model.head
    assert isinstance(head, FewBitsLinear)
    assert [part.bits for part in head.parts] == [8]


def test_what_no_kernel_takes_becomes_floats_and_is_named() -> None:
    """Groups of 16; parts in two forms."""
    weight = torch.randn(48, 64)
    for parts in ([quantize(weight, 8, 16)], [quantize(weight[:24], 8, 64), quantize(weight[24:], 4, 32)]):
        model = torch.nn.Module()
        linear = QuantizedLinear(Linear(64, 48, bias=False))
        start = 0
        for part in parts:
            linear.fill(start, part)
            start += len(part)
        model.add_module("product", linear)
        assert settle(model, torch.nn.Module(), torch.float32) == ["product"]
        product = model.get_submodule("product")
        assert isinstance(product, Linear)
        found = weight_of(product)
        assert isinstance(found, torch.Tensor)
        assert torch.equal(found, torch.cat([part.dequantized() for part in parts]))


@pytest.mark.parametrize("how", ["row", "one", "square"])
def test_8_bit_floats_stay_as_they_are(how: str) -> None:
    parts, meant = floats(torch.randn(64, 128), how)
    given = {f"p.{name}": part for name, part in parts.items()}
    [(name, found)] = unpacked("m", Packing("fp8", "floats"), iter(given.items()), floats_as="fp8")
    assert name == "p.weight"
    assert isinstance(found, QuantizedWeight)
    assert torch.equal(found.digits.float(), parts["weight"].float())
    torch.testing.assert_close(found.dequantized(), meant, rtol=1e-3, atol=0)


def test_scales_too_small_for_float16_make_floats() -> None:
    parts, meant = floats(1e-4 * torch.randn(64, 128), "row")
    [(_, found)] = unpacked(
        "m", Packing("fp8", "floats"), iter({f"p.{name}": part for name, part in parts.items()}.items()),
        floats_as="fp8",
    )  # fmt: skip
    assert isinstance(found, torch.Tensor)
    torch.testing.assert_close(found, meant)


# --- on a GPU -------------------------------------------------------------------------------------------


def engine(checkpoint: Path, quantization: QuantizationName = "auto", dtype: str = "float16", **more: bool) -> LLM:
    return LLM(
        str(checkpoint), device="cuda", dtype=dtype, num_blocks=256, block_size=16, skip_tokenizer_init=True,  # type: ignore[arg-type]
        quantization=quantization, **more,  # type: ignore[arg-type]
    )  # fmt: skip


def replies(llm: LLM, prompts: list[list[int]]) -> list[list[int]]:
    outputs = llm.generate([{"prompt_token_ids": prompt} for prompt in prompts], GREEDY, use_tqdm=False)
    return [output.outputs[0].token_ids for output in outputs]


@pytest.mark.gpu
@pytest.mark.parametrize("quantization", QUANTIZATIONS)
@pytest.mark.parametrize("family", ["llama_64", "phi_64", "opt_64", "qwen3_80", "gemma2_256", "wide"])
def test_tokens_are_those_of_the_dequantised_weights(
    family: str, quantization: Quantization, tmp_path: Path
) -> None:
    folder = tmp_path / "whole"
    checkpoint = save_wide(folder) if family == "wide" else make_checkpoint(folder, family)
    (tmp_path / "few").mkdir()
    meant = dequantised_checkpoint(tmp_path / "few", checkpoint, quantization, on_gpu=True)
    llm = engine(checkpoint, quantization)
    assert llm.info.quantization == quantization
    llm.prepare()
    check_greedy(meant, PROMPTS, replies(llm, PROMPTS), OF_16_BITS)


@pytest.fixture(scope="module", params=QUANTIZATIONS)
def llm(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> LLM:
    return engine(save_wide(tmp_path_factory.mktemp("llama")), request.param)


@pytest.mark.gpu
@settings(max_examples=8, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.lists(st.integers(3, 90), min_size=1, max_size=30), min_size=8, max_size=8))
def test_a_text_is_the_same_alone_and_among_seven_others(llm: LLM, prompts: list[list[int]]) -> None:
    assert replies(llm, prompts[:1]) == replies(llm, prompts)[:1]


@pytest.mark.gpu
@pytest.mark.parametrize("kind", KINDS)
def test_stored_checkpoints_keep_their_bits(kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(test_stored, "GROUP", 32)
    stored, meant = save_stored(tmp_path, kind, save_wide(tmp_path / "plain"))
    llm = engine(stored)
    assert llm.info.quantization == KINDS[kind][2]
    model = eager_of(llm._engine._core.runner).model
    assert sum(isinstance(module, FewBitsLinear) for module in model.modules()) == 8
    check_greedy(meant, PROMPTS, replies(llm, PROMPTS), OF_16_BITS)


@pytest.mark.gpu
@pytest.mark.parametrize("kind", ["gptq", "awq", "packed_8", "integers"])
def test_stored_experts_keep_their_bits(kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(test_stored, "GROUP", 32)
    stored, meant = save_stored(tmp_path, kind, save_mixture(tmp_path / "plain"))
    llm = engine(stored)
    assert llm.info.quantization == KINDS[kind][2]
    mixtures = [each for each in eager_of(llm._engine._core.runner).model.modules() if isinstance(each, SparseMlp)]
    assert mixtures
    for mixture in mixtures:
        assert isinstance(mixture.experts.gate_up, StackedWeight)
        assert isinstance(mixture.experts.down, StackedWeight)
    check_greedy(meant, PROMPTS, replies(llm, PROMPTS), OF_16_BITS)


@pytest.mark.gpu
def test_what_cannot_be_had_is_refused_in_words(tmp_path: Path) -> None:
    checkpoint = save_tiny(tmp_path, "llama")
    with pytest.raises(InvalidValueError, match="tensor cores do not multiply float32"):
        engine(checkpoint, "int8", "float32")
    with pytest.raises(InvalidValueError, match="take weights of 16 bits"):
        engine(checkpoint, "int8", batch_invariant=True)
