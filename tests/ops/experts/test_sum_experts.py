import pytest
import torch

from pagedchat.ops.experts.sum_experts import sum_experts
from tests.ops.paged_case import DEVICES
from tests.ops.products.small_batch_case import error, normal


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32], ids=str)
@pytest.mark.parametrize("width", [8, 100, 1032, 2048])
def test_agrees_with_the_definition(width: int, dtype: torch.dtype, device: str) -> None:
    for num_tokens, per_token in ((1, 8), (5, 2)):
        products = normal(num_tokens * per_token, width, device=device, dtype=dtype)
        weights = normal(num_tokens, per_token, device=device, dtype=torch.float32).abs()
        shared = normal(num_tokens, width, device=device, dtype=dtype, seed=3)
        logits = normal(num_tokens, 1, device=device, dtype=dtype, seed=4)
        wanted = torch.einsum(
            "tkw,tk->tw", products.cpu().double().view(num_tokens, per_token, width), weights.cpu().double()
        )
        both, eps = wanted + shared.cpu().double(), 2 * torch.finfo(dtype).eps
        gated = wanted + shared.cpu().double() * logits.cpu().double().sigmoid()
        assert error(sum_experts(products, weights), wanted) < eps
        assert error(sum_experts(products, weights, shared=shared), both) < eps
        assert error(sum_experts(products, weights, shared=shared, shared_logits=logits), gated) < eps
        stream = normal(num_tokens, width, device=device, dtype=dtype, seed=5)
        added = stream.cpu().double() + 0.5 * both
        summed = sum_experts(products, weights, shared=shared, residual=stream, residual_scale=0.5)
        assert summed is stream
        assert error(stream, added) < eps


def test_a_grid_has_room_for_any_number_of_tokens(monkeypatch: pytest.MonkeyPatch) -> None:
    """A GPU takes 65,535 thread blocks in all dimensions but the first."""
    grids: list[tuple[int, ...]] = []

    class Kernel:
        def launch(self, grid: tuple[int, ...], *_args: object, **_options: object) -> None:
            grids.append(grid)

    for name, answer in {"on_cuda": True, "can_overlap": False, "stream_of": 0, "get_kernel": Kernel()}.items():
        monkeypatch.setattr(f"pagedchat.ops.experts.sum_experts.{name}", lambda *_, given=answer, **__: given)
    products = torch.zeros(70_000, 8, dtype=torch.float16)
    sum_experts(products, torch.zeros(70_000, 1))
    assert grids == [(70_000, 1)]


def test_wrong_arguments_are_named() -> None:
    products, weights = torch.zeros(4, 8), torch.zeros(2, 2)
    with pytest.raises(ValueError, match=r"products has shape \[3, 8\], expected \[4, \*\]"):
        sum_experts(products[:3], weights)
    with pytest.raises(ValueError, match=r"shared has shape \[3, 8\], expected \[2, 8\]"):
        sum_experts(products, weights, shared=torch.zeros(3, 8))
    with pytest.raises(ValueError, match=r"residual has shape \[3, 8\], expected \[2, 8\]"):
        sum_experts(products, weights, residual=torch.zeros(3, 8))
    with pytest.raises(ValueError, match="residual is not contiguous"):
        sum_experts(products, weights, residual=torch.zeros(8, 2).T)
    with pytest.raises(ValueError, match=r"weights is torch\.float16"):
        sum_experts(products, weights.half())
    with pytest.raises(ValueError, match="products is not contiguous"):
        sum_experts(torch.zeros(8, 4).T, weights)
