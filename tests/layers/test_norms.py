import pytest
import torch
from transformers.models.llama.modeling_llama import LlamaRMSNorm

from pagedchat.layers.norms import Norm, NormConfig


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@torch.inference_mode()
def test_rms_norm_is_that_of_transformers_to_the_last_bit(dtype: torch.dtype) -> None:
    torch.manual_seed(0)
    ours, theirs = Norm(NormConfig(kind="rms", eps=1e-5), 24).to(dtype), LlamaRMSNorm(24, 1e-5).to(dtype)
    assert ours.weight is not None
    ours.weight.copy_(torch.randn(24))
    theirs.weight.copy_(ours.weight)
    rows = torch.randn(7, 3, 24, dtype=dtype)
    assert torch.equal(ours(rows), theirs(rows))


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
