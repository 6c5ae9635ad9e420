"""Captured steps of models whose weights have few bits: what their modules do, and in 16 bits no further off than
the floats that the bits stand for.
"""

import copy
from dataclasses import replace

import pytest
import torch

from pagedchat.jit.driver import Gpu
from pagedchat.layers.few_bits_linear import FewBitsLinear
from pagedchat.models.native_model import NativeModel
from pagedchat.ops.quantized.quantize import quantize
from pagedchat.runtime.graphs import which_step
from pagedchat.runtime.graphs.model_tensors import forms_of, layers_differ, setting_of
from pagedchat.runtime.graphs.step_facts import DecodeFacts, PrefillFacts
from pagedchat.runtime.graphs.which_step import FUSED, LIBRARY, MERGED, WARPGROUPS, which_decode, which_prefill
from tests.ops.paged_case import DEVICES
from tests.ops.products.few_bits_case import FORMS
from tests.runtime.graphs.case import make_runner, tiny_model
from tests.runtime.graphs.decode.test_decode_steps import assert_chain_is_right
from tests.runtime.graphs.families import KINDS, family_model
from tests.runtime.graphs.few_bits import MODEL_FORMS, as_floats, bring_to_few_bits
from tests.runtime.graphs.rounding import assert_decodes_round_no_worse, prompt_logits

H200 = Gpu(0, "NVIDIA H200", (9, 0), 140 << 30, 132, 227 << 10)
OLDER = Gpu(0, "NVIDIA A100", (8, 0), 80 << 30, 108, 163 << 10)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("form", MODEL_FORMS)
@pytest.mark.parametrize("name", [FUSED, WARPGROUPS, LIBRARY])
def test_decodes_are_those_of_the_modules(
    name: str, form: str, device: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert_chain_is_right(name, bring_to_few_bits(tiny_model("llama", device, torch.float32), form), monkeypatch)


@pytest.mark.parametrize("kind", KINDS)
def test_every_family(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in (FUSED, LIBRARY):
        if name == LIBRARY or kind != "llama_biases":  # its gates have biases
            model = bring_to_few_bits(family_model(kind, "cpu", torch.float32), "int4, 32, minimums; int8")
            with monkeypatch.context() as patch:
                assert_chain_is_right(name, model, patch)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("form", [FORMS[0], MODEL_FORMS[-1]])
def test_prompts_are_those_of_the_modules(form: str, device: str) -> None:
    model = bring_to_few_bits(tiny_model("llama", device, torch.float32), form)
    plain, merged = prompt_logits(model, captured=False), prompt_logits(model, captured=True)
    torch.testing.assert_close(merged, plain, rtol=1e-4, atol=1e-3)


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
@pytest.mark.parametrize("form", MODEL_FORMS)
@pytest.mark.parametrize("family", ["llama", "qwen3", "opt", "gpt_neox", "gemma2"])
@pytest.mark.parametrize("name", [FUSED, WARPGROUPS])
def test_decodes_round_no_worse(
    name: str, family: str, form: str, dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Than the same weights as floats, rounded to the type; each step takes the tokens of float32."""
    rule = next(rule for rule in which_step.DECODES if rule.name == name)
    monkeypatch.setattr(which_step, "DECODES", (replace(rule, wants=()),))
    few = bring_to_few_bits(tiny_model(family, "cuda", dtype), form)
    assert_decodes_round_no_worse(_meant(few, torch.float32), _meant(few, dtype), few, [5, 16, 90])


def test_steps_of_one_launch_are_for_whole_weights() -> None:
    model = bring_to_few_bits(tiny_model("llama", "cpu", torch.float16), "int8")
    setting = replace(setting_of(model, make_runner(model, 20, captured=False).backend), gpu=H200)
    names = ((1, FUSED), (2, FUSED), (8, FUSED), (9, WARPGROUPS), (128, WARPGROUPS), (129, LIBRARY))
    for rows, name in names:
        chosen = which_decode(DecodeFacts(setting=setting, rows=rows, context_len=300, choice="greedy"))
        assert chosen.name == name
        assert "few bits" in chosen.refused[0][1]
    assert which_prefill(PrefillFacts(setting=setting, num_tokens=64, num_blocks=8)).name == MERGED
    older = DecodeFacts(setting=replace(setting, gpu=OLDER), rows=1, context_len=300, choice="greedy")
    assert which_decode(older).name == LIBRARY


@pytest.mark.parametrize("form", ["int8, 64", "int4, 128, minimums"])
def test_a_dozen_rows_of_few_groups_are_left_to_products_one_by_one(form: str) -> None:
    model = bring_to_few_bits(tiny_model("llama", "cpu", torch.float16), form)
    setting = replace(setting_of(model, make_runner(model, 20, captured=False).backend), gpu=H200)
    chosen = which_decode(DecodeFacts(setting=setting, rows=9, context_len=300, choice="greedy"))
    assert chosen.name == LIBRARY
    assert "of its 4 products, or they are not whole tiles" in dict(chosen.refused)[WARPGROUPS]


def test_whole_models_have_no_forms() -> None:
    assert forms_of(tiny_model("llama", "cpu", torch.float16)) == {}
    found = forms_of(bring_to_few_bits(tiny_model("llama", "cpu", torch.float16), "int4, 64"))
    assert {str(form) for form in found.values()} == {"int4, groups of 64"}
    assert set(found) == {"qkv", "out", "up", "down", "head", "values"}


def test_values_of_another_form_are_a_product_of_their_own() -> None:
    model = bring_to_few_bits(tiny_model("llama", "cpu", torch.float16), MODEL_FORMS[-1])
    setting = setting_of(model, make_runner(model, 20, captured=False).backend)
    sizes = setting.sizes
    kv_width = sizes.num_kv_heads * sizes.head_dim
    assert str(setting.values_form) == "int8, a scale a row"
    assert [(product.name, product.out_features) for product in setting.products[:2]] == [
        ("qkv", sizes.qkv_rows - kv_width), ("values", kv_width),
    ]  # fmt: skip
    assert replace(setting, forms={**setting.forms, "values": setting.form("qkv")}).products == sizes.products


def test_layers_of_other_forms_than_most_are_noticed() -> None:
    model = bring_to_few_bits(tiny_model("llama", "cpu", torch.float16), "int8")
    assert not layers_differ(model)
    down = next(child for name, child in model.named_modules() if name.endswith("down"))
    assert isinstance(down, FewBitsLinear)
    down.parts = (quantize(down.parts[0].dequantized(torch.float16), 4, 32),)
    assert layers_differ(model)


def _meant(model: NativeModel, dtype: torch.dtype) -> NativeModel:
    return as_floats(copy.deepcopy(model), dtype)
