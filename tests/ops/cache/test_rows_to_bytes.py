"""Keys and values of new tokens into a cache of bytes: the bits of `byte_cache` in their slots, nothing else."""

import pytest
import torch

from pagedchat.ops.cache.byte_cache import DTYPES, dequantised, quantised
from pagedchat.ops.cache.byte_kinds import CacheKind
from pagedchat.ops.cache.gather_cached_kv import gather_cached_kv
from pagedchat.ops.cache.layout import check_paged_cache
from pagedchat.ops.cache.reshape_and_cache import reshape_and_cache
from tests.ops.byte_case import KINDS, empty_pages, whole_cache

DEVICES = ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)]
SHAPES = [(1, 64, 8), (2, 80, 16), (3, 96, 32), (8, 128, 16), (2, 256, 16), (5, 112, 8)]
"""KV heads, head size, block size."""
TYPES = [torch.float16, torch.bfloat16, torch.float32]


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("num_kv_heads", "head_size", "block_size"), SHAPES)
def test_heads_are_in_their_slots_as_torch_makes_them(
    num_kv_heads: int, head_size: int, block_size: int, kind: CacheKind, dtype: torch.dtype, device: str
) -> None:
    generator = torch.Generator().manual_seed(head_size)
    fused = torch.randn(300, 3 * num_kv_heads, head_size, generator=generator)
    fused *= 4.0 ** torch.randint(-4, 5, (300, 3 * num_kv_heads, 1), generator=generator)
    key, value = fused.to(dtype).to(device)[:, num_kv_heads:].chunk(2, dim=1)
    caches = empty_pages(350 // block_size + 3, num_kv_heads, head_size, block_size, kind, device)
    slots = torch.randperm(350, generator=generator)[:300]
    slots[7] = slots[299] = -1
    reshape_and_cache(key, value, *caches, slots.to(device))
    kept = [i for i in range(300) if i not in (7, 299)]
    for side, rows in zip(whole_cache(caches), (key, value), strict=True):
        found = side.flatten(0, 1).cpu()
        elements, scales = quantised(rows.cpu()[kept], DTYPES[kind])
        assert torch.equal(found[slots[kept]], dequantised(elements, scales, torch.float32))
        others = torch.ones(len(found), dtype=torch.bool)
        others[slots[kept]] = False
        assert found[others].isnan().all()


@pytest.mark.parametrize("kind", KINDS)
def test_whole_sequences_are_collected_as_numbers(kind: CacheKind) -> None:
    key, value = torch.randn(2, 21, 2, 64).unbind(0)
    caches = empty_pages(5, 2, 64, 8, kind)
    reshape_and_cache(key, value, *caches, torch.tensor([*range(24, 32), *range(8), *range(32, 37)]))
    tables, ends = torch.tensor([[3, 0, 4]], dtype=torch.int32), torch.tensor([0, 21], dtype=torch.int32)
    for found, rows in zip(gather_cached_kv(*caches, tables, ends, 21), (key, value), strict=True):
        assert torch.equal(found, dequantised(*quantised(rows, DTYPES[kind]), torch.float32))


def test_a_cache_without_room_for_scales_is_refused() -> None:
    keys, values = (torch.zeros(*size, dtype=torch.int8) for size in ((4, 2, 4, 8, 16), (4, 2, 64, 8)))
    with pytest.raises(ValueError, match="with scales"):
        check_paged_cache(keys, values)
