import pytest
import torch

from pagedchat.ops.cache.swap_blocks import swap_blocks
from tests.ops.paged_case import DEVICES

SHAPE = (3, 2, 6, 4, 2, 5)  # [num_layers, 2, num_blocks, block_size, num_kv_heads, head_dim]


def ids(*values: int, device: str = "cpu") -> torch.Tensor:
    return torch.tensor(values, dtype=torch.int64, device=device)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("pinned", [False, pytest.param(True, marks=pytest.mark.gpu)], ids=["pageable", "pinned"])
def test_swap_out_and_in_again(pinned: bool, device: str) -> None:
    cache = torch.randn(SHAPE, device=device)
    host = torch.randn((*SHAPE[:2], 4, *SHAPE[3:]))
    if pinned:
        host = host.pin_memory()
    before, host_before = cache.clone(), host.clone()
    swap_blocks(cache, host, ids(5, 1, device=device), ids(0, 3, device=device))
    finish(device)
    assert torch.equal(host[:, :, 0], before[:, :, 5].cpu())
    assert torch.equal(host[:, :, 3], before[:, :, 1].cpu())
    assert torch.equal(host[:, :, 1:3], host_before[:, :, 1:3])
    swap_blocks(host, cache, ids(3, 0, device=device), ids(2, 4, device=device))
    assert torch.equal(cache[:, :, 2], before[:, :, 1])
    assert torch.equal(cache[:, :, 4], before[:, :, 5])
    assert torch.equal(cache[:, :, [0, 1, 3, 5]], before[:, :, [0, 1, 3, 5]])


def finish(device: str) -> None:
    """Wait for what the host is about to look at."""
    if device == "cuda":
        torch.cuda.synchronize()


def test_wrong_arguments_are_named() -> None:
    cache = torch.zeros(SHAPE)
    with pytest.raises(ValueError, match="target has shape"):
        swap_blocks(cache, torch.zeros(2, 2, 6, 4, 2, 5), ids(0), ids(1))
    with pytest.raises(ValueError, match=r"target is torch\.float64, expected torch\.float32"):
        swap_blocks(cache, cache.double(), ids(0), ids(1))
