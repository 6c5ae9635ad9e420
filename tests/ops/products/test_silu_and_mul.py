import pytest
import torch

from pagedchat.ops.products.silu_and_mul import silu_and_mul
from tests.ops.paged_case import DEVICES
from tests.ops.products.small_batch_case import error, normal


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32], ids=str)
@pytest.mark.parametrize("width", [8, 100, 2048, 8192 + 8])
def test_agrees_with_the_definition(width: int, dtype: torch.dtype, device: str) -> None:
    for num_tokens in (1, 70):
        rows = normal(num_tokens, 2 * width, device=device, dtype=dtype, scale=3.0)
        gates, values = rows.cpu().double().chunk(2, dim=-1)
        wanted = gates * torch.sigmoid(gates) * values
        assert error(silu_and_mul(rows), wanted) < 2 * torch.finfo(dtype).eps


def test_odd_widths_are_refused() -> None:
    with pytest.raises(ValueError, match="not contiguous, or has an odd width"):
        silu_and_mul(torch.zeros(2, 7))
