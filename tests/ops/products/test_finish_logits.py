import pytest
import torch

from pagedchat.ops.products.finish_logits import finish_logits
from tests.ops.paged_case import DEVICES
from tests.ops.products.small_batch_case import error, normal


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32], ids=str)
@pytest.mark.parametrize(("scale", "cap"), [(0.3, None), (1.0, 5.0), (3.0, 2.0), (1.0, None)])
def test_agrees_with_the_definition(scale: float, cap: float | None, dtype: torch.dtype, device: str) -> None:
    for shape in ((1, 8), (3, 203), (5, 1024)):
        logits = normal(*shape, device=device, dtype=dtype, scale=4.0)
        wanted = logits.cpu().double() * scale
        wanted = wanted if cap is None else cap * (wanted / cap).tanh()
        finish_logits(logits, scale=scale, cap=cap)
        assert error(logits, wanted) < (2 * torch.finfo(dtype).eps if scale != 1 or cap else 1e-12)


def test_what_is_not_contiguous_is_refused() -> None:
    with pytest.raises(ValueError, match="logits is not contiguous"):
        finish_logits(torch.zeros(4, 4).T, scale=2.0, cap=None)
