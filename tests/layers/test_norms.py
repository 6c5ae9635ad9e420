from typing import Any

import pytest
import torch
from transformers.models.gemma.modeling_gemma import GemmaRMSNorm
from transformers.models.llama.modeling_llama import LlamaRMSNorm
from transformers.models.nemotron.modeling_nemotron import NemotronLayerNorm1P
from transformers.models.olmo2.modeling_olmo2 import Olmo2RMSNorm

from pagedchat.layers.norms import Norm, NormConfig

OF_TRANSFORMERS: dict[str, tuple[NormConfig, Any]] = {
    "llama": (NormConfig(kind="rms", eps=1e-5), LlamaRMSNorm),
    "gemma": (NormConfig(kind="rms", eps=1e-5, offset=1.0), GemmaRMSNorm),
    "nemotron": (NormConfig(kind="layer", eps=1e-5, bias=True, offset=1.0), NemotronLayerNorm1P),
    "olmo2": (NormConfig(kind="rms", eps=1e-5, exact=True), Olmo2RMSNorm),
}


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("family", OF_TRANSFORMERS)
@torch.inference_mode()
def test_norms_are_those_of_transformers_to_the_last_bit(family: str, dtype: torch.dtype) -> None:
    torch.manual_seed(0)
    config, their_class = OF_TRANSFORMERS[family]
    ours, theirs = Norm(config, 24).to(dtype), their_class(24, 1e-5).to(dtype)
    assert ours.weight is not None
    ours.weight.copy_(torch.randn(24))
    theirs.weight.copy_(ours.weight)
    if ours.bias is not None:
        ours.bias.copy_(torch.randn(24))
        theirs.bias.copy_(ours.bias)
    rows = torch.randn(7, 3, 24, dtype=dtype)
    assert torch.equal(ours(rows), theirs(rows))


@pytest.mark.parametrize("kind", ["rms", "layer"])
@torch.inference_mode()
def test_each_head_has_a_weight_of_its_own(kind: Any) -> None:
    torch.manual_seed(0)
    biased = kind == "layer"
    norm = Norm(NormConfig(kind=kind, eps=1e-5, bias=biased), 3, 8)
    places = norm.places("norms.{}")
    assert places.keys() == {f"norms.{i}.{part}" for i in range(3) for part in ("weight", "bias")[: 1 + biased]}
    rows, columns = torch.randn(7, 3, 8), []
    for head in range(3):
        single = Norm(norm.config, 8)
        for name, place in single.places(f"norms.{head}").items():
            place.normal_()
            places[name].copy_(place)
        columns.append(single(rows[:, head]))
    torch.testing.assert_close(norm(rows), torch.stack(columns, dim=1))


@pytest.mark.parametrize("affine", [True, False])
@torch.inference_mode()
def test_layer_norm(affine: bool) -> None:
    torch.manual_seed(0)
    norm = Norm(NormConfig(kind="layer", eps=1e-5, weight=affine, bias=affine), 24)
    places = norm.places("norm")
    for place in places.values():
        place.normal_()
    rows = torch.randn(7, 24) * 3 + 2
    centred = rows - rows.mean(-1, keepdim=True)
    expected = centred / (rows.var(-1, correction=0, keepdim=True) + 1e-5).sqrt()
    if affine:
        expected = expected * places["norm.weight"] + places["norm.bias"]
    torch.testing.assert_close(norm(rows), expected)
    assert len(places) == (2 if affine else 0)
