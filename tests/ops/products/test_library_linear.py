import pytest
import torch

from pagedchat.ops.common.choices import ACTIVATIONS, Activation
from pagedchat.ops.products.library_linear import in_epilogue, library_middle
from tests.ops.paged_case import DEVICES
from tests.ops.products.small_batch_case import DTYPES, allowed, error, exact_activation, normal


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("paired", [False, True])
@pytest.mark.parametrize("biased", [False, True])
@pytest.mark.parametrize("activation", [name for name in ACTIVATIONS if name != "none"])
def test_the_middle_agrees_with_the_definition(
    activation: Activation, biased: bool, paired: bool, dtype: torch.dtype, device: str
) -> None:
    rows = normal(13, 64, device=device, dtype=dtype)
    weight = normal(96, 64, device=device, dtype=dtype, scale=0.2)
    bias = normal(96, device=device, dtype=dtype) if biased else None
    product = rows.cpu().double() @ weight.cpu().double().T + (0 if bias is None else bias.cpu().double())
    gates, values = product.chunk(2, dim=1) if paired else (product, 1)
    got = library_middle(rows, weight, bias, activation, paired=paired)
    assert error(got, exact_activation(activation, gates) * values) < allowed(dtype)


def test_only_a_gpu_has_gelu_by_tanh_behind_a_bias() -> None:
    assert [name for name in ACTIVATIONS if in_epilogue(name, on_gpu=True)] == ["relu", "gelu_tanh"]
    assert [name for name in ACTIVATIONS if in_epilogue(name, on_gpu=False)] == ["relu"]
