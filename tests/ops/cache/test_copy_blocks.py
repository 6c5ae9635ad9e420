import random

import pytest
import torch

from pagedchat.ops.cache.copy_blocks import copy_blocks
from tests.ops.paged_case import DEVICES

SHAPE = (3, 2, 6, 4, 2, 5)  # [num_layers, 2, num_blocks, block_size, num_kv_heads, head_dim]
PAGES = [(4, 2, 5), (16, 12, 64), (3,), (8, 1, 80)]  # what a block is in one layer; (3,) is not whole rows
DTYPES = [torch.float16, torch.bfloat16, torch.float32]


def ids(*values: int, device: str = "cpu") -> torch.Tensor:
    return torch.tensor(values, dtype=torch.int64, device=device)


def random_pairs(num_blocks: int, num_pairs: int, rng: random.Random) -> tuple[list[int], list[int]]:
    """Pairs none of which reads what an earlier one wrote, or writes it again."""
    src: list[int] = []
    dst: list[int] = []
    while len(src) < num_pairs:
        source, target = rng.randrange(num_blocks), rng.randrange(num_blocks)
        if source not in dst and target not in dst:
            src.append(source)
            dst.append(target)
    return src, dst


@pytest.mark.parametrize("device", DEVICES)
def test_copy_keeps_what_a_later_pair_overwrites(device: str) -> None:
    cache = torch.randn(SHAPE, device=device)
    before = cache.clone()
    copy_blocks(cache, ids(0, 3, 4, device=device), ids(5, 0, 3, device=device))
    expected = before.clone()
    expected[:, :, 5], expected[:, :, 0], expected[:, :, 3] = before[:, :, 0], before[:, :, 3], before[:, :, 4]
    assert torch.equal(cache, expected)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("page", PAGES, ids=str)
@pytest.mark.parametrize("num_pairs", [0, 1, 8, 37])
def test_copies_as_if_one_after_the_other(
    num_pairs: int, page: tuple[int, ...], dtype: torch.dtype, device: str
) -> None:
    src, dst = random_pairs(50, num_pairs, random.Random(num_pairs))
    cache = torch.randn((3, 2, 50, *page)).to(dtype)
    copied = cache.to(device, copy=True)
    copy_blocks(copied, ids(*src, device=device), ids(*dst, device=device))
    for source, target in zip(src, dst, strict=True):
        cache[:, :, target] = cache[:, :, source]
    assert torch.equal(copied.cpu(), cache)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("page", PAGES, ids=str)
@pytest.mark.parametrize("num_pairs", [1, 2, 25])
def test_copies_side_by_side_where_no_block_is_in_both(num_pairs: int, page: tuple[int, ...], device: str) -> None:
    order = torch.randperm(50)
    src, dst = order[:num_pairs], order[25 : 25 + num_pairs]
    cache = torch.randn((3, 2, 50, *page))
    copied = cache.to(device, copy=True)
    copy_blocks(copied, src.to(device), dst.to(device), disjoint=True)
    cache[:, :, dst] = cache[:, :, src]
    assert torch.equal(copied.cpu(), cache)


@pytest.mark.gpu
def test_copy_past_four_gibi_elements() -> None:
    num_blocks = (1 << 32) // 1024 + 10
    cache = torch.empty(1, 2, num_blocks, 16, 64, device="cuda", dtype=torch.float16)
    cache[:, :, -1] = 1
    cache[:, :, 0] = 2
    copy_blocks(cache, ids(num_blocks - 1, 0, device="cuda"), ids(5, num_blocks - 2, device="cuda"))
    assert bool((cache[:, :, 5] == 1).all())
    assert bool((cache[:, :, -2] == 2).all())


@pytest.mark.gpu
def test_copy_captured_in_a_graph() -> None:
    cache = torch.randn(SHAPE, device="cuda")
    src, dst = ids(0, 1, device="cuda"), ids(2, 3, device="cuda")
    copy_blocks(cache, src, dst)  # compiles
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        copy_blocks(cache, src, dst)
    src.copy_(ids(3, 4))
    dst.copy_(ids(5, 1))
    before = cache.clone()
    graph.replay()
    assert torch.equal(cache[:, :, 5], before[:, :, 3])
    assert torch.equal(cache[:, :, 1], before[:, :, 4])
    assert torch.equal(cache[:, :, :1], before[:, :, :1])


def test_wrong_arguments_are_named() -> None:
    cache = torch.zeros(SHAPE)
    with pytest.raises(ValueError, match=r"dst has shape \[1\], expected \[2\]"):
        copy_blocks(cache, ids(0, 1), ids(2))
    with pytest.raises(ValueError, match=r"src is torch\.float32, expected torch\.int64"):
        copy_blocks(cache, torch.zeros(1), ids(2))
