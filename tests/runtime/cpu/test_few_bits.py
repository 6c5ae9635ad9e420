"""Weights of few bits by kernels: whole steps are what the modules say, and both are what the weights mean."""

from pathlib import Path

import pytest
import torch

from pagedchat.engine.sequence import Sequence
from pagedchat.layers.by_torch import by_torch
from pagedchat.layers.quantized_linear import QuantizedLinear, StoredEmbedding, stored_parts
from pagedchat.models.config import describe_model
from pagedchat.models.cpu_linear import use_cpu_linears
from pagedchat.models.decoder import Decoder
from pagedchat.models.loader import load_weights
from pagedchat.models.quantized.forms import Quantization
from pagedchat.ops.cpu.kernels import cpu_kernels
from pagedchat.ops.cpu.packing import PackedWeight
from pagedchat.ops.quantized.quantize import quantize
from pagedchat.ops.quantized.weight import QuantizedWeight
from pagedchat.runtime.attention.dense import DenseAttention
from pagedchat.runtime.cpu.layer_parts import products_of
from pagedchat.runtime.loading.self_check import SelfCheck
from tests.models.families.tiny_families import WIDE_VOCAB_SIZE
from tests.runtime.cpu.test_step import PROMPTS, TOKENS, runner_of, saved
from tests.runtime.drive import Driver

CPU = torch.device("cpu")
FORMS: list[Quantization] = ["int8", "int4"]
MIXTURES = [
    "mixtral", "qwen2_moe", "qwen2_moe_some_sparse", "qwen3_moe", "olmoe_no_bounds", "gpt_oss", "gpt_oss_no_biases"
]  # fmt: skip


@pytest.fixture(scope="module", autouse=True)
def need_kernels() -> None:
    if cpu_kernels() is None:
        pytest.skip("no CPU kernels")


def raw(folder: Path, form: Quantization) -> Decoder:
    description = describe_model("wide", folder)
    model = load_weights(description, attention="", dtype=torch.float32, device=CPU, quantization=form)
    assert isinstance(model, Decoder)
    return model


def decoder(folder: Path, form: Quantization) -> Decoder:
    model = raw(folder, form)
    use_cpu_linears(model, available=0)
    return model


def said(model: Decoder) -> torch.Tensor:
    places = torch.arange(len(TOKENS))
    with torch.inference_mode():
        logits: torch.Tensor = model(torch.tensor(TOKENS), places, DenseAttention(), places)
    return logits


def last_logits(model: Decoder, prompts: list[list[int]], *, whole: bool) -> torch.Tensor:
    """Of the fourth step."""
    runner = runner_of(model, num_blocks=200)
    runner.whole_steps = whole
    heard: list[torch.Tensor] = []
    drive, forward = Driver(runner), runner.forward
    for prompt in prompts:
        drive.add(prompt)
    runner.forward = lambda inputs: heard.append(forward(inputs).clone()) or heard[-1]
    for _ in range(4):
        drive.step(1000)
    assert (runner.step is not None) or not whole
    return heard[-1]


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("name", ["llama", "qwen2", "opt", "gpt2", "gemma", *MIXTURES])
def test_whole_steps_are_what_the_modules_say(name: str, form: Quantization, tmp_path: Path) -> None:
    model = decoder(saved(tmp_path, name), form)
    assert len(products_of(model.layers[0].attention.qkv)) == (2 if form == "int4" else 1)
    whole, modules = (last_logits(model, PROMPTS, whole=each) for each in (True, False))
    # Sums in another order bring some inputs to the next of 255 steps.
    assert (whole - modules).norm() < 0.03 * modules.norm()


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize(
    ("name", "whole"), [("qwen2", True), ("qwen2", False), ("qwen2_moe", True), ("gpt_oss", True)]
)
def test_a_text_is_the_same_alone_and_among_seven_others_bit_for_bit(
    name: str, form: Quantization, tmp_path: Path, *, whole: bool
) -> None:
    model = decoder(saved(tmp_path, name), form)
    prompts = [TOKENS[i : i + 5 + 3 * i] for i in range(8)]
    together, alone = (last_logits(model, some, whole=whole) for some in (prompts, prompts[3:4]))
    if whole:
        assert torch.equal(together[3], alone[0])
    else:  # attention by torch adds in an order of its own
        torch.testing.assert_close(together[3], alone[0], rtol=0.02, atol=0.02 * float(alone.abs().max()))


@pytest.mark.parametrize("form", FORMS)
def test_kernels_say_what_their_weights_mean(form: Quantization, tmp_path: Path) -> None:
    folder = saved(tmp_path, "qwen2")
    plain, model = raw(folder, form), decoder(folder, form)
    assert not any(isinstance(part, QuantizedWeight) for part in stored_parts(model))
    assert sum(each.nbytes for each in stored_parts(model)) == sum(each.nbytes for each in stored_parts(plain))
    with by_torch(model):
        torch.testing.assert_close(said(model), said(plain), rtol=1e-4, atol=1e-4)
    off = (said(model) - said(plain)).norm() / said(plain).norm()
    assert 1e-4 < off < 0.05


def test_a_table_that_is_the_head_stays_one(tmp_path: Path) -> None:
    model = raw(saved(tmp_path, "qwen2"), "int8")
    head, table = model.head, model.embedding
    assert isinstance(head, QuantizedLinear)
    assert isinstance(table, StoredEmbedding)
    few = quantize(torch.randn(head.out_features, head.in_features), 4, 32)
    head.parts, table.table = [few], few
    indices = torch.tensor([3, 17, 16, head.out_features - 1])
    before = table(indices)
    use_cpu_linears(model, available=0)
    assert isinstance(table.table, PackedWeight)
    assert any(part is table.table for part in stored_parts(model))
    assert torch.equal(table(indices), before)


def test_parts_that_kernels_do_not_take_stay_with_torch(tmp_path: Path) -> None:
    model = raw(saved(tmp_path, "qwen2"), "int8")
    linear = model.layers[0].attention.qkv
    assert isinstance(linear, QuantizedLinear)
    assert linear.bias is not None
    weight = torch.randn(linear.out_features, linear.in_features)
    linear.parts = [quantize(weight[:20], 8, 8), quantize(weight[20:], 8, 32)]
    meant = torch.cat([part.dequantized() for part in linear.parts if isinstance(part, QuantizedWeight)])
    use_cpu_linears(model, available=0)
    assert isinstance(linear.parts[0], QuantizedWeight)
    rows = torch.randn(7, linear.in_features)
    exact = rows @ meant.T + linear.bias
    product = linear(rows)
    torch.testing.assert_close(product[:, :20], exact[:, :20], rtol=1e-5, atol=1e-5)
    assert 0 < (product - exact).norm() < 0.01 * exact.norm()
    assert runner_of(model).step is None


def checked(
    folder: Path, name: str, errors: list[float], monkeypatch: pytest.MonkeyPatch
) -> tuple[SelfCheck, list[int]]:
    """The check of a model whose texts are off by so much, and the first tokens of those that were tried."""
    runner = runner_of(decoder(saved(folder, name), "int8"))
    check, tried = SelfCheck(name, runner, WIDE_VOCAB_SIZE), list[int]()

    def error(text: Sequence, _logits: torch.Tensor) -> float:
        tried.append(text.token_ids[0])
        return errors[len(tried) - 1]

    monkeypatch.setattr(check, "_error", error)
    monkeypatch.setattr(check, "_room_of_experts", lambda _: 0.0)
    return check, tried


def test_a_text_with_another_expert_does_not_leave_kernels_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    check, tried = checked(tmp_path, "mixtral", [0.4, 0.02, 0.5, 0.02, 0.03], monkeypatch)
    check.refuse_if_wrong()
    assert check.left_out == []
    assert len(set(tried)) == 5


@pytest.mark.parametrize("errors", [[0.4, 0.02, 0.5, 0.02, 0.6], [0.4, 0.02, 0.02, 0.02, float("nan")]])
def test_kernels_that_are_off_in_most_texts_or_make_no_numbers_are_left_out(
    errors: list[float], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    check, tried = checked(tmp_path, "mixtral", [*errors, 0.0], monkeypatch)
    check.refuse_if_wrong()
    assert [each.kind for each in check.left_out] == ["CPU kernels"]
    assert len(tried) == 6


def test_of_a_model_without_experts_one_text_is_enough(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    check, tried = checked(tmp_path, "qwen2", [0.4, 0.0], monkeypatch)
    check.refuse_if_wrong()
    assert [each.kind for each in check.left_out] == ["CPU kernels"]
    assert len(tried) == 2


def test_whole_steps_have_as_many_texts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    check, tried = checked(
        tmp_path, "mixtral", [0.4, 0.3, 0.02, 0.02, 0.02, 0.4, 0.4, 0.4, 0.02, 0.02], monkeypatch
    )
    assert check.allows_whole_steps()
    assert not check.allows_whole_steps()
    assert len(tried) == 10
