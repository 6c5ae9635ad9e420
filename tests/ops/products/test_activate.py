import math

import pytest
import torch

from pagedchat.ops.common.choices import ACTIVATIONS, Activation
from pagedchat.ops.products.activate import activate
from tests.ops.paged_case import DEVICES
from tests.ops.products.small_batch_case import error, exact_activation, normal


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32], ids=str)
@pytest.mark.parametrize("paired", [False, True])
@pytest.mark.parametrize("activation", [name for name in ACTIVATIONS if name != "none"])
def test_agrees_with_the_definition(activation: Activation, paired: bool, dtype: torch.dtype, device: str) -> None:
    for width in (8, 100, 2048, 8192 + 8):
        for num_tokens in (1, 70):
            rows = normal(num_tokens, width * (1 + paired), device=device, dtype=dtype, scale=3.0)
            exact = rows.cpu().double()
            gates, values = exact.chunk(2, dim=-1) if paired else (exact, 1)
            wanted = exact_activation(activation, gates) * values
            assert error(activate(rows, activation, paired=paired), wanted) < 2 * torch.finfo(dtype).eps


def test_exact_and_approximate_gelu_differ_as_they_should() -> None:
    ones = torch.ones(1, 8)
    exact = 0.5 * (1 + math.erf(2**-0.5))
    assert abs(float(activate(ones, "gelu", paired=False)[0, 0]) - exact) < 1e-6
    assert 1e-5 < abs(float(activate(ones, "gelu_tanh", paired=False)[0, 0]) - exact) < 1e-3


def test_odd_widths_are_refused() -> None:
    with pytest.raises(ValueError, match="not contiguous, or has an odd width"):
        activate(torch.zeros(2, 7), "silu", paired=True)
