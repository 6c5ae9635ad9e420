"""Slopes are those that transformers gives the families that have them."""

import pytest
import torch
from transformers.models.bloom.modeling_bloom import build_alibi_tensor
from transformers.models.mpt.modeling_mpt import build_mpt_alibi_tensor

from pagedchat.layers.alibi import Alibi

NUM_HEADS = [1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 71, 112]


@pytest.mark.parametrize("num_heads", NUM_HEADS)
def test_slopes_of_bloom(num_heads: int) -> None:
    theirs = build_alibi_tensor(torch.ones(1, 2, dtype=torch.long), num_heads, torch.float32)[:, 0, 1]
    torch.testing.assert_close(Alibi().slopes(num_heads), theirs, rtol=1e-5, atol=0)


@pytest.mark.parametrize("max_bias", [4, 8, 16])
@pytest.mark.parametrize("num_heads", NUM_HEADS)
def test_slopes_of_mpt(num_heads: int, max_bias: int) -> None:
    theirs = -build_mpt_alibi_tensor(num_heads, 2, max_bias)[:, 0, 0]
    torch.testing.assert_close(Alibi(max_bias=max_bias).slopes(num_heads), theirs, rtol=1e-6, atol=0)


def test_rounding_comes_before_the_scale() -> None:
    slopes = Alibi(scale=0.3, rounded=True).slopes(6)
    assert torch.equal(slopes, (Alibi().slopes(6).bfloat16().double() * 0.3).float())
    assert slopes.dtype == torch.float32
