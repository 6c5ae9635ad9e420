import pytest
import torch

from pagedchat.ops.cache.heads_to_cache import heads_to_cache
from pagedchat.ops.cache.layout import key_cache_shape, to_token_major, value_cache_shape
from tests.ops.paged_case import DEVICES
from tests.ops.products.small_batch_case import error, normal

HEADS = [(12, 12, 64), (4, 2, 80), (8, 2, 128), (2, 1, 256)]
"""Query heads, KV heads, head size."""
NUM_BLOCKS = 160
DTYPES = [torch.float16, torch.bfloat16, torch.float32]


def turned(heads: torch.Tensor, angles: torch.Tensor) -> torch.Tensor:
    first, second = heads.chunk(2, dim=-1)
    cos, sin = angles.cos()[:, None], angles.sin()[:, None]
    return torch.cat((first * cos - second * sin, second * cos + first * sin), dim=-1)


def check(
    num_tokens: int, sizes: tuple[int, int, int], rotary: bool, block_size: int, dtype: torch.dtype, device: str
) -> None:
    num_heads, num_kv_heads, head_size = sizes
    heads = normal(num_tokens, num_heads + 2 * num_kv_heads, head_size, device=device, dtype=dtype)
    before = heads.cpu().double()
    positions = [(i * 37) % (2 * block_size) if i % 7 != 1 else -1 for i in range(num_tokens)]
    tables = torch.randperm(NUM_BLOCKS)[: 2 * num_tokens].view(num_tokens, 2).int()
    key_cache = torch.zeros(key_cache_shape(NUM_BLOCKS, num_kv_heads, head_size, block_size, dtype), dtype=dtype)
    value_cache = torch.zeros(value_cache_shape(NUM_BLOCKS, num_kv_heads, head_size, block_size), dtype=dtype)
    key_cache, value_cache = key_cache.to(device), value_cache.to(device)
    angles = torch.arange(2 * block_size).double()[:, None] * torch.linspace(1, 0.01, head_size // 2).double()
    turns = torch.stack((angles.cos(), angles.sin()), dim=-1).float().to(device) if rotary else None
    query = heads_to_cache(
        heads,
        key_cache,
        value_cache,
        tables.to(device),
        torch.tensor(positions, dtype=torch.int32, device=device),
        rotations=turns,
    )
    assert query.shape == (num_tokens, num_heads, head_size)
    assert query.data_ptr() == heads.data_ptr()
    live = [i for i, position in enumerate(positions) if position >= 0]
    if rotary:
        of_rows = angles[[max(position, 0) for position in positions]]
        before[:, :-num_kv_heads] = turned(before[:, :-num_kv_heads], of_rows)
    allowed = torch.finfo(dtype).eps if rotary else 0
    assert error(query[live], before[live, :num_heads]) <= allowed
    places = [(int(tables[i, positions[i] // block_size]), positions[i] % block_size) for i in live]
    caches = to_token_major(key_cache, value_cache)
    for cache, first in zip((c.cpu() for c in caches), (num_heads, num_heads + num_kv_heads), strict=True):
        got = torch.stack([cache[place] for place in places])
        assert error(got, before[live, first : first + num_kv_heads]) <= allowed
        for place in places:
            cache[place] = 0
        assert not bool(cache.any())  # nothing of the padding, and nothing elsewhere


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("rotary", [False, True])
@pytest.mark.parametrize("sizes", HEADS, ids=str)
def test_heads_go_to_their_slots(
    sizes: tuple[int, int, int], rotary: bool, dtype: torch.dtype, device: str
) -> None:
    check(5, sizes, rotary, 16, dtype, device)
    check(70, sizes, rotary, 8, dtype, device)


def test_wrong_arguments_are_named() -> None:
    key, value = torch.zeros(4, 2, 16, 8, 4), torch.zeros(4, 2, 64, 8)
    heads = torch.zeros(3, 6, 64)
    tables, positions = torch.zeros(3, 2, dtype=torch.int32), torch.zeros(3, dtype=torch.int32)
    with pytest.raises(ValueError, match="heads has 4 heads, expected more than 4"):
        heads_to_cache(heads[:, :4], key, value, tables, positions)
    with pytest.raises(ValueError, match="heads is not contiguous"):
        heads_to_cache(heads[:, :5], key, value, tables, positions)
    with pytest.raises(ValueError, match=r"positions is torch\.int64, expected torch\.int32"):
        heads_to_cache(heads, key, value, tables, positions.long())
    with pytest.raises(ValueError, match=r"rotations has shape \[4, 64\], expected \[\*, 32, 2\]"):
        heads_to_cache(heads, key, value, tables, positions, rotations=torch.zeros(4, 64))
