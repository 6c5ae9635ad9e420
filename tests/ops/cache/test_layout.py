import pytest
import torch

from pagedchat.ops.cache.layout import (
    check_paged_cache,
    from_token_major,
    key_cache_shape,
    to_token_major,
    value_cache_shape,
)

DTYPES = [torch.float16, torch.bfloat16, torch.float32]


def test_shapes() -> None:
    assert key_cache_shape(7, 2, 64, 16, torch.float16) == (7, 2, 8, 16, 8)
    assert key_cache_shape(7, 2, 64, 16, torch.float32) == (7, 2, 16, 16, 4)
    assert value_cache_shape(7, 2, 64, 16) == (7, 2, 64, 16)
    with pytest.raises(ValueError, match=r"head_size is 20, expected a multiple of 8 for torch\.float16"):
        key_cache_shape(7, 2, 20, 16, torch.float16)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_every_element_has_its_place(dtype: torch.dtype) -> None:
    num_blocks, block_size, num_kv_heads, head_size = 3, 8, 2, 16
    key, value = (torch.randn(num_blocks, block_size, num_kv_heads, head_size).to(dtype) for _ in range(2))
    key_cache, value_cache = from_token_major(key, value)
    assert key_cache.shape == key_cache_shape(num_blocks, num_kv_heads, head_size, block_size, dtype)
    assert value_cache.shape == value_cache_shape(num_blocks, num_kv_heads, head_size, block_size)
    x = key_cache.shape[-1]
    for d in range(head_size):
        assert torch.equal(key_cache[:, :, d // x, :, d % x], key[..., d].transpose(1, 2))
        assert torch.equal(value_cache[:, :, d], value[..., d].transpose(1, 2))


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_there_and_back_again(dtype: torch.dtype) -> None:
    key, value = (torch.randn(4, 8, 3, 80).to(dtype) for _ in range(2))
    back = to_token_major(*from_token_major(key, value))
    assert torch.equal(back[0], key)
    assert torch.equal(back[1], value)


def test_sizes_are_read_off_the_tensors() -> None:
    sizes = check_paged_cache(torch.zeros(7, 2, 8, 16, 8).half(), torch.zeros(7, 2, 64, 16).half())
    assert sizes == (7, 2, 64, 16)
    assert (sizes.num_blocks, sizes.num_kv_heads, sizes.head_size, sizes.block_size) == (7, 2, 64, 16)


@pytest.mark.parametrize(
    ("key_cache", "value_cache", "message"),
    [
        (torch.zeros(7, 2, 8, 16, 8), torch.zeros(7, 2, 64), r"value_cache has shape \[7, 2, 64\]"),
        (
            torch.zeros(7, 2, 8, 16, 8),
            torch.zeros(7, 2, 64, 16),
            r"key_cache has shape .*expected \[7, 2, 16, 16, 4\]",
        ),
        (torch.zeros(7, 2, 16, 16, 4), torch.zeros(7, 2, 64, 16).half(), r"value_cache is torch\.float16 on cpu"),
        (torch.zeros(7, 2, 16, 16, 4), torch.zeros(7, 2, 16, 64).mT, "value_cache has strides .*contiguous blocks"),
    ],
)
def test_wrong_caches_are_named(key_cache: torch.Tensor, value_cache: torch.Tensor, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        check_paged_cache(key_cache, value_cache)
