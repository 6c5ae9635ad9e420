import pytest
import torch

from pagedchat.ops.products.add_norm import add_norm
from tests.ops.paged_case import DEVICES
from tests.ops.products.small_batch_case import DTYPES, error, exact_norm, make_norm, normal


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("dtype", [*DTYPES, torch.float32], ids=str)
@pytest.mark.parametrize("kind", ["layer", "rms"])
@pytest.mark.parametrize("width", [8, 100, 768, 4096, 10240])
def test_agrees_with_the_definition(width: int, kind: str, dtype: torch.dtype, device: str) -> None:
    norm = make_norm(kind, width, device, dtype)
    assert norm is not None
    for num_rows in (1, 70):
        hidden = normal(num_rows, width, device=device, dtype=dtype) + 3
        before = hidden.clone()
        update = normal(num_rows, width, device=device, dtype=dtype, seed=4)
        normed = add_norm(hidden, update, norm)
        assert torch.equal(hidden, before + update)
        tolerance = 2 * torch.finfo(dtype).eps
        assert error(normed, exact_norm(norm, hidden.cpu().double())) < tolerance
        unchanged = hidden.clone()
        assert torch.equal(add_norm(hidden, None, norm), normed)
        assert torch.equal(hidden, unchanged)


def test_wrong_arguments_are_named() -> None:
    norm = make_norm("layer", 8, "cpu", torch.float32)
    assert norm is not None
    with pytest.raises(ValueError, match=r"update has shape \[2, 8\], expected \[3, 8\]"):
        add_norm(torch.zeros(3, 8), torch.zeros(2, 8), norm)
    with pytest.raises(ValueError, match=r"norm\.weight has shape \[8\], expected \[16\]"):
        add_norm(torch.zeros(3, 16), None, norm)
