"""The cache layout of PagedAttention (Kwon et al. 2023, arXiv 2309.06180): sizes, slots, and tensors by token.

    key_cache    [num_blocks, num_kv_heads, head_size / x, block_size, x]    x elements are 16 bytes
    value_cache  [num_blocks, num_kv_heads, head_size, block_size]

The keys and the values of one head in one block are each one contiguous tile, made of rows of at least 16 bytes.
"""

from typing import NamedTuple

import torch

from pagedchat.ops.cache.byte_cache import dequantised, is_byte_cache, page_bytes, scales_of
from pagedchat.ops.common.checks import check_same_type, check_shape

ROW_BYTES = 16
"""Bytes in a row of the key cache: what one thread reads at a time."""


def row_elements(dtype: torch.dtype) -> int:
    """`x`: how many elements of the type a row of the key cache holds."""
    return ROW_BYTES // dtype.itemsize


def key_cache_shape(
    num_blocks: int, num_kv_heads: int, head_size: int, block_size: int, dtype: torch.dtype
) -> tuple[int, int, int, int, int]:
    """Shape of the key cache.

    Raises:
        ValueError: the head size is no multiple of a row.
    """
    x = row_elements(dtype)
    if head_size % x:
        raise ValueError(f"head_size is {head_size}, expected a multiple of {x} for {dtype}")
    return num_blocks, num_kv_heads, head_size // x, block_size, x


def value_cache_shape(
    num_blocks: int, num_kv_heads: int, head_size: int, block_size: int
) -> tuple[int, int, int, int]:
    """Shape of the value cache."""
    return num_blocks, num_kv_heads, head_size, block_size


def to_token_major(key_cache: torch.Tensor, value_cache: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Copy a paged cache into two tensors `[num_blocks, block_size, num_kv_heads, head_size]`.

    Args:
        key_cache: `[num_blocks, num_kv_heads, head_size / x, block_size, x]`.
        value_cache: `[num_blocks, num_kv_heads, head_size, block_size]`.
    """
    key = key_cache.permute(0, 3, 1, 2, 4).flatten(3)  # [num_blocks, block_size, num_kv_heads, head_size]
    return key.contiguous(), value_cache.permute(0, 3, 1, 2).contiguous()


def from_token_major(key: torch.Tensor, value: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Copy keys and values `[num_blocks, block_size, num_kv_heads, head_size]` into a new paged cache.

    Raises:
        ValueError: the head size is no multiple of a row.
    """
    num_blocks, block_size, num_kv_heads, head_size = key.shape
    x = key_cache_shape(num_blocks, num_kv_heads, head_size, block_size, key.dtype)[-1]
    rows = key.reshape(num_blocks, block_size, num_kv_heads, head_size // x, x)
    return rows.permute(0, 2, 3, 1, 4).contiguous(), value.permute(0, 2, 3, 1).contiguous()


def tokens_of(
    key_cache: torch.Tensor, value_cache: torch.Tensor, blocks: torch.Tensor, dtype: torch.dtype
) -> tuple[torch.Tensor, torch.Tensor]:
    """Keys and values of some blocks as numbers, whatever the cache holds.

    Args:
        key_cache: `[num_blocks, num_kv_heads, head_size / x, block_size, x]`.
        value_cache: `[num_blocks, num_kv_heads, head_size, block_size]`.
        blocks: `[num_read]`, int64.
        dtype: of the result.

    Returns:
        Two tensors `[num_read, block_size, num_kv_heads, head_size]`.
    """
    if not is_byte_cache(key_cache):
        key, value = to_token_major(key_cache[blocks], value_cache[blocks])
        return key.to(dtype), value.to(dtype)
    of_heads = (value_cache.shape[1], value_cache.shape[3])
    scales = [scales_of(cache, *of_heads)[blocks].transpose(1, 2) for cache in (key_cache, value_cache)]
    near = (cache.view(torch.uint8)[blocks] for cache in (key_cache, value_cache))
    elements = (part.view(key_cache.dtype) for part in to_token_major(*near))
    key, value = (dequantised(*both, dtype) for both in zip(elements, scales, strict=True))
    return key, value


def context_slots(block_table: list[int], start: int, end: int, block_size: int) -> torch.Tensor:
    """Slots of the tokens `start` to `end - 1` of a sequence.

    Args:
        block_table: ids of the sequence's blocks in order, covering at least `end` tokens.
        start, end: positions in the sequence.
        block_size: token slots in a block.

    Returns:
        `[end - start]`, int64, on the CPU.

    Raises:
        ValueError: the block table is too short.
    """
    first = start // block_size
    stop = -(-end // block_size)
    if stop > len(block_table):
        raise ValueError(
            f"block_table has {len(block_table)} blocks of {block_size}, expected {stop} for {end} tokens"
        )
    blocks = torch.tensor(block_table[first:stop], dtype=torch.int64)
    slots = (blocks[:, None] * block_size + torch.arange(block_size)).view(-1)
    return slots[start - first * block_size : end - first * block_size]


class CacheSizes(NamedTuple):
    """What the two tensors of a paged cache agree on."""

    num_blocks: int
    num_kv_heads: int
    head_size: int
    block_size: int


def check_paged_cache(key_cache: torch.Tensor, value_cache: torch.Tensor) -> CacheSizes:
    """Sizes of a paged cache.

    Raises:
        ValueError: the tensors differ in type, device or sizes, or a block is not one run of memory.
    """
    check_shape("value_cache", value_cache, None, None, None, None)
    check_same_type("value_cache", value_cache, key_cache)
    sizes = CacheSizes(*value_cache.shape)
    check_shape("key_cache", key_cache, *key_cache_shape(*sizes, key_cache.dtype))
    for name, cache in (("key_cache", key_cache), ("value_cache", value_cache)):
        if cache.shape[0] > 0 and not cache[0].is_contiguous():
            raise ValueError(f"{name} has strides {list(cache.stride())}, expected contiguous blocks")
        if is_byte_cache(cache):
            _check_scales(name, cache, sizes)
    return sizes


def _check_scales(name: str, cache: torch.Tensor, sizes: CacheSizes) -> None:
    page = page_bytes(sizes.block_size, sizes.num_kv_heads, sizes.head_size)
    if cache.shape[0] > 0 and cache.stride(0) != page:
        raise ValueError(f"{name} has {cache.stride(0)} bytes from block to block, expected {page}, with scales")
