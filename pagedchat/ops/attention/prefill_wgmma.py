"""Prefill on Hopper's warpgroup tensor cores: launches kernels/attention/prefill_wgmma.cu.

FlashAttention-3 (Shah et al. 2024, arXiv 2407.08608) over the paged cache, for float16 and bfloat16.
"""

import torch

from pagedchat.jit.driver import gpu
from pagedchat.jit.launch import f32, get_kernel, i32
from pagedchat.ops.attention.call import AttentionCall
from pagedchat.ops.attention.wgmma_plan import TILES, choose_tile, max_items
from pagedchat.ops.common.choices import BLOCK_SIZES
from pagedchat.ops.common.launch import address, has_warpgroups, stream_of

NAME = "prefill_wgmma"


def supported(call: AttentionCall) -> bool:
    """Whether the kernel can do it: a Hopper GPU, 16-bit elements, a cache without gaps, a scale above 0."""
    return (
        has_warpgroups(call.query)
        and call.query.shape[2] in TILES
        and call.key_cache.shape[3] in BLOCK_SIZES
        and call.key_cache.is_contiguous()
        and call.options.scale > 0.0
    )


def launch(call: AttentionCall, cu_seqlens_q: torch.Tensor, max_query_len: int, *, overlap: bool = False) -> None:
    """Launch the kernel; see `prefill.Launch`."""
    query, output, options = call.query, call.output, call.options
    num_tokens, num_heads, head_size = query.shape
    num_seqs, num_kv_heads, device = len(call.seq_lens), call.key_cache.shape[1], gpu(query.device.index)
    rows = min(num_tokens, max_query_len * num_seqs) * (num_heads // num_kv_heads)
    tile = choose_tile(
        head_size,
        finishes_scores=options.cap is not None or options.alibi_slopes is not None,
        num_rows=rows,
        num_kv_heads=num_kv_heads,
        num_multiprocessors=device.num_multiprocessors,
    )
    kernel = get_kernel(NAME, device.index, NAME, **call.constants, **tile.constants, SINKS=options.has_sinks)
    shared_bytes = tile.shared_bytes(head_size)
    kernel.allow_shared(shared_bytes)
    args = (
        output.data_ptr(),
        address(call.lse),
        query.data_ptr(),
        call.key_cache.data_ptr(),
        call.value_cache.data_ptr(),
        call.block_tables.data_ptr(),
        call.seq_lens.data_ptr(),
        cu_seqlens_q.data_ptr(),
        address(options.alibi_slopes),
        address(options.sinks),
        i32(num_seqs),
        i32(num_kv_heads),
        i32(call.block_tables.stride(0)),
        output.stride(0),
        output.stride(1),
        query.stride(0),
        query.stride(1),
        f32(options.scale),
        f32(options.cap or 0.0),
        i32(options.window),
    )
    grid = min(max_items(tile, rows, num_seqs) * num_kv_heads, device.num_multiprocessors)
    kernel.launch(grid, tile.threads, args, stream=stream_of(query), shared_bytes=shared_bytes, overlap=overlap)
