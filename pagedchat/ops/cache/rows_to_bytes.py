"""Write the keys and values of new tokens into their slots of a paged cache of one byte an element.

What `reshape_and_cache` does there; kernels/cache/rows_to_bytes.cu, and torch elsewhere.
"""

import torch

from pagedchat.jit.launch import get_kernel, i32
from pagedchat.ops.cache.byte_cache import CACHE_KINDS, quantised, scales_of
from pagedchat.ops.cache.layout import CacheSizes
from pagedchat.ops.common.launch import (
    ELEMENT_NAMES,
    can_overlap,
    ceil_div,
    element_name,
    on_cuda,
    stream_of,
    with_whole_rows,
)

NUM_WARPS = 4
"""Of a thread block: `BYTE_WARPS` of kernels/cache/byte_heads.cuh; each has a head."""


def rows_to_bytes(
    key: torch.Tensor,
    value: torch.Tensor,
    key_cache: torch.Tensor,
    value_cache: torch.Tensor,
    slot_mapping: torch.Tensor,
    sizes: CacheSizes,
    *,
    overlap: bool = False,
) -> None:
    """Put every new token's key and value into its slot; arguments of `reshape_and_cache`, known to be right.

    Args:
        key, value: `[num_tokens, num_kv_heads, head_size]`, any strides and float type.
        key_cache: `[num_blocks, num_kv_heads, head_size / 16, block_size, 16]`, written, with the scales behind it.
        value_cache: `[num_blocks, num_kv_heads, head_size, block_size]`, likewise.
        slot_mapping: `[num_tokens]`, int64; -1 skips a token.
        sizes: of the cache.
        overlap: as in `reshape_and_cache`.
    """
    if on_cuda(key, slot_mapping) and has_byte_kernel(key):
        if len(key) > 0:
            _launch(key, value, key_cache, value_cache, slot_mapping, sizes, overlap)
        return
    kept = slot_mapping >= 0
    slots = slot_mapping[kept]
    blocks, offsets = slots // sizes.block_size, slots % sizes.block_size
    for cache, rows in ((key_cache, key), (value_cache, value)):
        elements, scales = quantised(rows[kept], cache.dtype)
        places = cache.view(torch.uint8)
        in_rows = elements.view(torch.uint8).view(-1, *places.shape[1:3], *places.shape[4:])
        places[blocks, :, :, offsets] = in_rows  # [num_kept, num_kv_heads, head_size / 16, 16] or [.., head_size]
        scales_of(cache, sizes.num_kv_heads, sizes.block_size)[blocks, :, offsets] = scales


def has_byte_kernel(rows: torch.Tensor) -> bool:
    """Whether kernels bring rows of this type into bytes: of 16 bits."""
    return rows.dtype in ELEMENT_NAMES and rows.itemsize == 2


def _launch(
    key: torch.Tensor,
    value: torch.Tensor,
    key_cache: torch.Tensor,
    value_cache: torch.Tensor,
    slot_mapping: torch.Tensor,
    sizes: CacheSizes,
    overlap: bool,
) -> None:
    key, value = with_whole_rows(key), with_whole_rows(value)
    kernel = get_kernel(
        "rows_to_bytes",
        key.device.index,
        ELEMENT=element_name(key.dtype),
        HEAD_SIZE=sizes.head_size,
        BLOCK_SIZE=sizes.block_size,
        CACHE_KIND=CACHE_KINDS[key_cache.dtype],
    )
    args = (
        key_cache.data_ptr(),
        value_cache.data_ptr(),
        key.data_ptr(),
        value.data_ptr(),
        slot_mapping.contiguous().data_ptr(),
        i32(sizes.num_kv_heads),
        key_cache.stride(0),
        value_cache.stride(0),
        *key.stride()[:2],
        *value.stride()[:2],
    )
    grid = (len(key), ceil_div(2 * sizes.num_kv_heads, NUM_WARPS))
    overlap = overlap and can_overlap(key.device)
    kernel.launch(grid, 32 * NUM_WARPS, args, stream=stream_of(key), overlap=overlap)
