import math

import pytest
import torch

from pagedchat.ops.common.choices import ACTIVATIONS, Activation
from pagedchat.ops.products import activate as activation_op
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


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("paired", [False, True])
def test_any_number_of_rows(paired: bool, device: str) -> None:
    rows = normal(70_001, 8 * (1 + paired), device=device, dtype=torch.float16)
    found = activate(rows, "silu", paired=paired)
    for first in range(0, len(rows), 7_000):
        part = rows[first : first + 7_000]
        assert torch.equal(found[first : first + 7_000], activate(part, "silu", paired=paired))


def test_a_grid_may_have_any_number_of_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of blocks side by side there may be 2^31 - 1, above each other 65,535: CUDA C++ programming guide."""
    grids = []

    class Kernel:
        def launch(self, grid: object, *_given: object, **_options: object) -> None:
            grids.append(grid)

    monkeypatch.setattr(activation_op, "on_cuda", lambda *_: True)
    monkeypatch.setattr(activation_op, "get_kernel", lambda *_given, **_constants: Kernel())
    monkeypatch.setattr(activation_op, "stream_of", lambda _: 0)
    for num_tokens, width in ((1, 8), (65_536, 8), (70_000, 1032)):
        activate(torch.empty(num_tokens, width, dtype=torch.float16), "silu", paired=False)
    assert grids == [1, 65_536, 140_000]


def test_exact_and_approximate_gelu_differ_as_they_should() -> None:
    ones = torch.ones(1, 8)
    exact = 0.5 * (1 + math.erf(2**-0.5))
    assert abs(float(activate(ones, "gelu", paired=False)[0, 0]) - exact) < 1e-6
    assert 1e-5 < abs(float(activate(ones, "gelu_tanh", paired=False)[0, 0]) - exact) < 1e-3


def test_odd_widths_are_refused() -> None:
    with pytest.raises(ValueError, match="not contiguous, or has an odd width"):
        activate(torch.zeros(2, 7), "silu", paired=True)
