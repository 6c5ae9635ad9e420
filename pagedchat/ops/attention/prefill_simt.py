"""Prefill on CUDA cores: launches kernels/attention/prefill_simt.cu for `paged_prefill`.

Any element type on any GPU, float32 inside; for float32 it is the only kernel, as tensor cores would round it.
"""

import torch

from pagedchat.jit.launch import f32, get_kernel, i32
from pagedchat.ops.attention.call import AttentionCall
from pagedchat.ops.attention.simt_plan import PREFILL_THREADS, shared_memory, tile_shape
from pagedchat.ops.common.choices import BLOCK_SIZES, HEAD_SIZES
from pagedchat.ops.common.launch import ELEMENT_NAMES, address, on_cuda, stream_of

NAME = "prefill_simt"


def supported(call: AttentionCall) -> bool:
    """Whether the kernel has a variant for tensors like these; every option goes with every variant."""
    query, block_size = call.query, call.key_cache.shape[3]
    known = query.dtype in ELEMENT_NAMES and query.shape[2] in HEAD_SIZES and block_size in BLOCK_SIZES
    return known and on_cuda(query, call.key_cache)


def launch(call: AttentionCall, cu_seqlens_q: torch.Tensor, max_query_len: int, *, overlap: bool = False) -> None:
    """The kernel alone, see `prefill.Launch`; `max_query_len` and `overlap` are taken, and of no use to it."""
    del max_query_len, overlap
    query, key_cache, value_cache, output, options = (
        call.query, call.key_cache, call.value_cache, call.output, call.options,
    )  # fmt: skip
    num_tokens, num_heads, head_size = query.shape
    num_seqs, num_kv_heads = len(call.seq_lens), key_cache.shape[1]
    tile_rows, tile_keys = tile_shape(head_size)
    kernel = get_kernel(NAME, query.device.index, NAME, **call.constants, SINKS=options.has_sinks)
    shared_bytes = shared_memory(head_size, tile_rows, tile_keys)
    kernel.allow_shared(shared_bytes)
    args = (
        output.data_ptr(),
        address(call.lse),
        query.data_ptr(),
        key_cache.data_ptr(),
        value_cache.data_ptr(),
        call.block_tables.data_ptr(),
        call.seq_lens.data_ptr(),
        cu_seqlens_q.data_ptr(),
        address(options.alibi_slopes),
        address(options.sinks),
        i32(num_seqs),
        i32(call.block_tables.stride(0)),
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
    grid = (num_kv_heads, num_tokens * (num_heads // num_kv_heads) // tile_rows + num_seqs)
    kernel.launch(grid, PREFILL_THREADS, args, stream=stream_of(query), shared_bytes=shared_bytes)
