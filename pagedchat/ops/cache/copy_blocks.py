"""Copy whole blocks inside the cache: what copy-on-write comes down to."""

import torch

from pagedchat.jit.launch import get_kernel, i32
from pagedchat.ops.cache.layout import ROW_BYTES
from pagedchat.ops.common.checks import check_pairs
from pagedchat.ops.common.launch import ceil_div, on_cuda, stream_of

BLOCK_DIM = 2
"""Dimension of the cache tensor that counts blocks: `[num_layers, 2, num_blocks, ...]`."""

_THREADS = 128
_MAX_GRID_Y = 65535

# As in kernels/cache/copy_blocks.cu.
_PAIRS_AT_ONCE = 2
_ROWS_PER_THREAD = 1


def copy_blocks(kv_cache: torch.Tensor, src: torch.Tensor, dst: torch.Tensor, *, disjoint: bool = False) -> None:
    """Copy block `src[i]` to block `dst[i]`, all layers, K and V.

    A pair may overwrite a block that an earlier pair reads; none reads what an earlier one wrote. Then reading
    everything first and going through the pairs in order come to the same.

    Args:
        kv_cache: `[num_layers, 2, num_blocks, ...]`, written in place.
        src, dst: `[num_pairs]`, int64, on the cache's device; no `dst` twice.
        disjoint: the caller knows that no block is in both; then a GPU copies all pairs side by side.

    Raises:
        ValueError: shapes or types that do not go together.
    """
    check_pairs(src, dst)
    if on_cuda(kv_cache, src, dst) and has_whole_pages(kv_cache):
        _launch(kv_cache, src, dst, disjoint)
    else:
        kv_cache.index_copy_(BLOCK_DIM, dst, kv_cache.index_select(BLOCK_DIM, src))


def page_rows(kv_cache: torch.Tensor) -> int:
    """16-byte rows of a block in one layer, K or V."""
    return kv_cache.shape[BLOCK_DIM + 1 :].numel() * kv_cache.itemsize // ROW_BYTES


def has_whole_pages(kv_cache: torch.Tensor) -> bool:
    """Whether every block is a run of whole 16-byte rows in each layer, K and V."""
    page_bytes = kv_cache.shape[BLOCK_DIM + 1 :].numel() * kv_cache.itemsize
    aligned = page_bytes % ROW_BYTES == 0 and kv_cache.data_ptr() % ROW_BYTES == 0
    return aligned and kv_cache.is_contiguous()


def _launch(kv_cache: torch.Tensor, src: torch.Tensor, dst: torch.Tensor, disjoint: bool) -> None:
    num_layers, num_sides, num_blocks = kv_cache.shape[: BLOCK_DIM + 1]
    num_pairs, rows = src.shape[0], page_rows(kv_cache)
    if num_pairs == 0:
        return
    pairs_per_block = max(_PAIRS_AT_ONCE, ceil_div(num_pairs, _MAX_GRID_Y)) if disjoint else num_pairs
    pointers = (kv_cache.data_ptr(), src.contiguous().data_ptr(), dst.contiguous().data_ptr())
    kernel = get_kernel("copy_blocks", kv_cache.device.index)
    kernel.launch(
        (ceil_div(rows, _THREADS * _ROWS_PER_THREAD), ceil_div(num_pairs, pairs_per_block), num_layers * num_sides),
        _THREADS,
        (*pointers, i32(num_pairs), i32(pairs_per_block), i32(rows), num_blocks * rows),
        stream=stream_of(kv_cache),
    )
