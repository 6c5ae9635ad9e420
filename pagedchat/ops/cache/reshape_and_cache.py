"""Write the keys and values of new tokens into their slots of the paged cache."""

import torch

from pagedchat.jit.launch import get_kernel, i32
from pagedchat.ops.cache.byte_cache import is_byte_cache
from pagedchat.ops.cache.layout import CacheSizes, check_paged_cache, row_elements
from pagedchat.ops.cache.rows_to_bytes import rows_to_bytes
from pagedchat.ops.common.checks import check_dtype, check_same_type, check_shape
from pagedchat.ops.common.launch import can_overlap, ceil_div, element_name, on_cuda, stream_of, with_whole_rows

FEW_TOKENS = 256
"""With no more tokens than these, writing each alone beats looking for runs of slots."""

# As in kernels/cache/reshape_and_cache.cu: what one thread block of `reshape_and_cache_runs` takes.
_RUN_TOKENS = 32
_RUN_COLUMNS = 16


def reshape_and_cache(
    key: torch.Tensor,
    value: torch.Tensor,
    key_cache: torch.Tensor,
    value_cache: torch.Tensor,
    slot_mapping: torch.Tensor,
    *,
    overlap: bool = False,
) -> None:
    """Put every new token's key and value into its slot.

    Args:
        key, value: `[num_tokens, num_kv_heads, head_size]`, any strides.
        key_cache, value_cache: written in place; either the layout of `ops.cache.layout`,
            `[num_blocks, num_kv_heads, head_size / x, block_size, x]` and
            `[num_blocks, num_kv_heads, head_size, block_size]`,
            or both token-major, `[num_blocks, block_size, num_kv_heads, head_size]`, contiguous. The former may be
            of bytes with scales (`ops.cache.byte_cache`).
        slot_mapping: `[num_tokens]`, int64: `block_id * block_size + block_offset`; no slot twice. In the layout of
            `ops.cache.layout`, -1 skips a token.
        overlap: the launch may begin before the kernel before it has ended, which makes `key` and `value`; the
            slots are read before that.

    Raises:
        ValueError: shapes or types that do not go together.
    """
    if key_cache.dim() == 4:
        _write_token_major(key, value, key_cache, value_cache, slot_mapping)
        return
    sizes = check_paged_cache(key_cache, value_cache)
    if is_byte_cache(key_cache):
        _check_tokens(key, value, key, slot_mapping, sizes.num_kv_heads, sizes.head_size)
        rows_to_bytes(key, value, key_cache, value_cache, slot_mapping, sizes, overlap=overlap)
        return
    _check_tokens(key, value, key_cache, slot_mapping, sizes.num_kv_heads, sizes.head_size)
    if on_cuda(key, slot_mapping):
        _launch(key, value, key_cache, value_cache, slot_mapping, sizes, overlap)
    else:
        _write_paged(key, value, key_cache, value_cache, slot_mapping)


def _check_tokens(
    key: torch.Tensor,
    value: torch.Tensor,
    key_cache: torch.Tensor,
    slot_mapping: torch.Tensor,
    num_kv_heads: int,
    head_size: int,
) -> None:
    check_shape("key", key, None, num_kv_heads, head_size)
    check_shape("value", value, key.shape[0], num_kv_heads, head_size)
    check_shape("slot_mapping", slot_mapping, key.shape[0])
    check_dtype("slot_mapping", slot_mapping, torch.int64)
    check_same_type("key", key, key_cache)
    check_same_type("value", value, key_cache)


def _write_token_major(
    key: torch.Tensor,
    value: torch.Tensor,
    key_cache: torch.Tensor,
    value_cache: torch.Tensor,
    slot_mapping: torch.Tensor,
) -> None:
    num_blocks, block_size, num_kv_heads, head_size = key_cache.shape
    _check_tokens(key, value, key_cache, slot_mapping, num_kv_heads, head_size)
    check_shape("value_cache", value_cache, num_blocks, block_size, num_kv_heads, head_size)
    slots_shape = (num_blocks * block_size, num_kv_heads, head_size)
    key_cache.view(slots_shape).index_copy_(0, slot_mapping, key)
    value_cache.view(slots_shape).index_copy_(0, slot_mapping, value)


def _write_paged(
    key: torch.Tensor,
    value: torch.Tensor,
    key_cache: torch.Tensor,
    value_cache: torch.Tensor,
    slot_mapping: torch.Tensor,
) -> None:
    kept = slot_mapping >= 0
    slots = slot_mapping[kept]
    blocks, offsets = slots // value_cache.shape[3], slots % value_cache.shape[3]
    rows = key[kept].view(-1, key.shape[1], key_cache.shape[2], key_cache.shape[4])
    key_cache[blocks, :, :, offsets] = rows  # [num_kept, num_kv_heads, head_size / x, x]
    value_cache[blocks, :, :, offsets] = value[kept]  # [num_kept, num_kv_heads, head_size]


def _launch(
    key: torch.Tensor,
    value: torch.Tensor,
    key_cache: torch.Tensor,
    value_cache: torch.Tensor,
    slot_mapping: torch.Tensor,
    sizes: CacheSizes,
    overlap: bool,
) -> None:
    num_tokens, x = key.shape[0], row_elements(key.dtype)
    if num_tokens == 0:
        return
    key, value = with_whole_rows(key), with_whole_rows(value)
    num_columns = sizes.num_kv_heads * sizes.head_size // x
    tensors = (key_cache, value_cache, key, value, slot_mapping.contiguous())
    strides = (key_cache.stride(0), value_cache.stride(0), *key.stride()[:2], *value.stride()[:2])
    pointers = tuple(tensor.data_ptr() for tensor in tensors)
    few = num_tokens <= FEW_TOKENS
    kernel = get_kernel(
        "reshape_and_cache",
        key.device.index,
        entry="reshape_and_cache" if few else "reshape_and_cache_runs",
        ELEMENT=element_name(key.dtype),
        HEAD_SIZE=sizes.head_size,
        BLOCK_SIZE=sizes.block_size,
    )
    if few:
        block = min(256, ceil_div(num_columns, 32) * 32)
        grid = (num_tokens, ceil_div(num_columns, block), 2)
        counts: tuple[int, ...] = (i32(num_columns),)
    else:
        block = _RUN_TOKENS // x * _RUN_COLUMNS
        grid = (ceil_div(num_tokens, _RUN_TOKENS), ceil_div(num_columns, _RUN_COLUMNS), 2)
        counts = (i32(num_tokens), i32(num_columns))
    overlap = overlap and can_overlap(key.device)
    kernel.launch(grid, block, (*pointers, *counts, *strides), stream=stream_of(key), overlap=overlap)
