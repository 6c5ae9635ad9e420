"""Prefill on CUDA cores: launches kernels/attention/prefill_simt.cu for `paged_prefill`.

Any element type on any GPU, float32 inside; for float32 it is the only kernel, as tensor cores would round it.
"""

import torch

from pagedchat.jit.launch import f32, get_kernel, i32
from pagedchat.ops.attention.options import AttentionOptions
from pagedchat.ops.attention.simt_plan import PREFILL_THREADS, shared_memory, tile_shape
from pagedchat.ops.common.choices import BLOCK_SIZES, HEAD_SIZES
from pagedchat.ops.common.launch import ELEMENT_NAMES, address, element_name, on_cuda, stream_of

NAME = "prefill_simt"


def supported(query: torch.Tensor, key_cache: torch.Tensor, options: AttentionOptions) -> bool:
    """Whether the kernel has a variant for tensors like these; every option goes with every variant."""
    del options
    known = query.dtype in ELEMENT_NAMES and query.shape[2] in HEAD_SIZES and key_cache.shape[3] in BLOCK_SIZES
    return known and on_cuda(query, key_cache)


def launch(
    query: torch.Tensor,
    key_cache: torch.Tensor,
    value_cache: torch.Tensor,
    block_tables: torch.Tensor,
    seq_lens: torch.Tensor,
    cu_seqlens_q: torch.Tensor,
    options: AttentionOptions,
    max_query_len: int,
    output: torch.Tensor,
    lse: torch.Tensor | None,
    *,
    overlap: bool = False,
) -> None:
    """The kernel alone; shapes and types have been checked.

    Args:
        query: `[num_tokens, num_heads, head_size]`, rows of 16-byte pieces at any token and head stride.
        key_cache: `[num_blocks, num_kv_heads, head_size / x, block_size, x]`, `x` elements are 16 bytes.
        value_cache: `[num_blocks, num_kv_heads, head_size, block_size]`.
        block_tables: `[num_seqs, max_blocks_per_seq]`, int32; read up to each sequence's last block.
        seq_lens: `[num_seqs]`, int32, the chunk included.
        cu_seqlens_q: `[num_seqs + 1]`, int32: where each chunk begins in `query`.
        options: scale, window, soft cap, ALiBi.
        max_query_len: tokens of the longest chunk; the grid does not need it.
        output: like `query`, written.
        lse: `[num_tokens, num_heads]`, float32, gets the natural log-sum-exp of the scores if given.
        overlap: taken, and of no use to it.
    """
    del overlap
    num_tokens, num_heads, head_size = query.shape
    num_seqs, num_kv_heads = len(seq_lens), key_cache.shape[1]
    group_size = num_heads // num_kv_heads
    tile_rows, tile_keys = tile_shape(head_size)
    slopes = options.alibi_slopes
    kernel = get_kernel(
        NAME,
        query.device.index,
        ELEMENT=element_name(query.dtype),
        HEAD_SIZE=head_size,
        BLOCK_SIZE=key_cache.shape[3],
        GROUP_SIZE=group_size,
        SOFT_CAP=int(options.cap is not None),
        ALIBI=int(slopes is not None),
    )
    shared_bytes = shared_memory(head_size, tile_rows, tile_keys)
    kernel.allow_shared(shared_bytes)
    args = (
        output.data_ptr(),
        address(lse),
        query.data_ptr(),
        key_cache.data_ptr(),
        value_cache.data_ptr(),
        block_tables.data_ptr(),
        seq_lens.data_ptr(),
        cu_seqlens_q.data_ptr(),
        address(slopes),
        i32(num_seqs),
        i32(block_tables.stride(0)),
        i32(num_kv_heads),
        key_cache.stride(0),
        value_cache.stride(0),
        query.stride(0),
        query.stride(1),
        output.stride(0),
        output.stride(1),
        i32(options.window),
        f32(options.scale),
        f32(options.cap or 0.0),
    )
    grid = (num_kv_heads, num_tokens * group_size // tile_rows + num_seqs)
    kernel.launch(grid, PREFILL_THREADS, args, stream=stream_of(query), shared_bytes=shared_bytes)
