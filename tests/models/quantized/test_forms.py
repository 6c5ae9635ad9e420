"""Which products have how many bits, by what they are for and how wide the model is."""

from pathlib import Path

import pytest
import torch

from pagedchat.layers.quantized_linear import QuantizedLinear
from pagedchat.models.config import describe_model
from pagedchat.models.decoder import Decoder
from pagedchat.models.quantized.forms import Form, forms
from pagedchat.models.quantized.shell import quantized_shell
from tests.models.families.tiny_families import save_tiny

FOLDER = Path(__file__).parents[1] / "configs"


def found(config: Path) -> tuple[Decoder, dict[QuantizedLinear, list[Form]]]:
    description = describe_model("m", config)
    assert description.native is not None
    model = quantized_shell(description.native, torch.float32)
    assert isinstance(model, Decoder)
    return model, forms("m", model, "int4")


def bits(forms_of_rows: list[Form]) -> list[tuple[int, int]]:
    return [(form.stop, form.bits) for form in forms_of_rows]


@pytest.mark.parametrize(
    ("name", "up"),
    [("opt-125m", 8), ("gpt2", 8), ("phi-2", 4), ("smollm-135m", 4), ("qwen2.5-0.5b", 4), ("llama-3.1-8b", 4)],
)
def test_what_goes_into_an_activation_without_a_gate_has_8_bits_in_narrow_models(name: str, up: int) -> None:
    model, by_product = found(FOLDER / name)
    mlp, heads = model.layers[0].mlp, model.config.heads
    into = mlp.up if hasattr(mlp, "up") else mlp.gate_up
    assert bits(by_product[into]) == [(into.out_features, up)]
    assert bits(by_product[mlp.down]) == [(mlp.down.out_features, 4)]
    attention = model.layers[0].attention
    qkv = heads.query_width + 2 * heads.kv_width
    assert bits(by_product[attention.qkv]) == [(qkv - heads.kv_width, 4), (qkv, 8)]
    assert bits(by_product[attention.out]) == [(attention.out.out_features, 4)]
    assert bits(by_product[model.head]) == [(model.config.vocab_size, 8)]


def test_in_8_bits_all_have_8(tmp_path: Path) -> None:
    description = describe_model("m", save_tiny(tmp_path, "opt"))
    assert description.native is not None
    model = quantized_shell(description.native, torch.float32)
    assert {form.bits for each in forms("m", model, "int8").values() for form in each} == {8}
