"""Collect the keys and values of whole sequences from their blocks into plain tensors."""

import torch

from pagedchat.jit.launch import get_kernel, i32
from pagedchat.ops.cache.byte_cache import is_byte_cache
from pagedchat.ops.cache.layout import CacheSizes, check_paged_cache, row_elements, tokens_of
from pagedchat.ops.common.checks import check_dtype, check_shape
from pagedchat.ops.common.launch import ceil_div, element_name, on_cuda, stream_of

# As in kernels/cache/gather_cached_kv.cu.
_THREADS = 128
_TILE_ROWS = 1024


def gather_cached_kv(
    key_cache: torch.Tensor,
    value_cache: torch.Tensor,
    block_tables: torch.Tensor,
    cu_seq_lens: torch.Tensor,
    num_tokens: int,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Copies of the keys and values of the first tokens of each sequence, sequences after one another.

    Args:
        key_cache: `[num_blocks, num_kv_heads, head_size / x, block_size, x]`.
        value_cache: `[num_blocks, num_kv_heads, head_size, block_size]`.
        block_tables: `[num_seqs, max_blocks_per_seq]`, int32; entries past a sequence's tokens are not looked at.
        cu_seq_lens: `[num_seqs + 1]`, int32: where each sequence begins in the result, and where the last one ends.
        num_tokens: `cu_seq_lens[-1]`, known to the host.

    Returns:
        Keys and values, `[num_tokens, num_kv_heads, head_size]` each, float32 where the cache is of bytes.

    Raises:
        ValueError: shapes or types that do not go together.
    """
    sizes = check_paged_cache(key_cache, value_cache)
    check_shape("block_tables", block_tables, None, None)
    check_shape("cu_seq_lens", cu_seq_lens, block_tables.shape[0] + 1)
    for name, tensor in (("block_tables", block_tables), ("cu_seq_lens", cu_seq_lens)):
        check_dtype(name, tensor, torch.int32)
    if on_cuda(key_cache, block_tables, cu_seq_lens) and not is_byte_cache(key_cache):
        return _launch(key_cache, value_cache, block_tables, cu_seq_lens, num_tokens, sizes)
    return _gather(key_cache, value_cache, block_tables, cu_seq_lens, sizes.block_size)


def _gather(
    key_cache: torch.Tensor,
    value_cache: torch.Tensor,
    block_tables: torch.Tensor,
    cu_seq_lens: torch.Tensor,
    block_size: int,
) -> tuple[torch.Tensor, torch.Tensor]:
    keys, values, dtype = [], [], torch.float32 if is_byte_cache(key_cache) else key_cache.dtype
    for table, length in zip(block_tables, cu_seq_lens.diff().tolist(), strict=True):
        blocks = table[: ceil_div(length, block_size)].long()
        key, value = tokens_of(key_cache, value_cache, blocks, dtype)
        keys.append(key.flatten(0, 1)[:length])
        values.append(value.flatten(0, 1)[:length])
    return torch.cat(keys), torch.cat(values)


def _launch(
    key_cache: torch.Tensor,
    value_cache: torch.Tensor,
    block_tables: torch.Tensor,
    cu_seq_lens: torch.Tensor,
    num_tokens: int,
    sizes: CacheSizes,
) -> tuple[torch.Tensor, torch.Tensor]:
    shape = (num_tokens, sizes.num_kv_heads, sizes.head_size)
    key, value = (torch.empty(shape, dtype=key_cache.dtype, device=key_cache.device) for _ in range(2))
    if num_tokens == 0:
        return key, value
    block_tables, cu_seq_lens = block_tables.contiguous(), cu_seq_lens.contiguous()
    num_seqs, max_blocks_per_seq = block_tables.shape
    kernel = get_kernel(
        "gather_cached_kv",
        key.device.index,
        ELEMENT=element_name(key.dtype),
        HEAD_SIZE=sizes.head_size,
        BLOCK_SIZE=sizes.block_size,
    )
    num_columns = sizes.num_kv_heads * sizes.head_size // row_elements(key.dtype)
    tile_columns = _TILE_ROWS // sizes.block_size
    tensors = (key, value, key_cache, value_cache, block_tables, cu_seq_lens)
    kernel.launch(
        (num_tokens // sizes.block_size + num_seqs, ceil_div(num_columns, tile_columns), 2),
        _THREADS,
        (
            *(tensor.data_ptr() for tensor in tensors),
            i32(num_seqs),
            i32(sizes.num_kv_heads),
            i32(max_blocks_per_seq),
            key_cache.stride(0),
            value_cache.stride(0),
        ),
        stream=stream_of(key),
    )
    return key, value
