"""Prefill on Hopper's warpgroup tensor cores: launches kernels/attention/prefill_wgmma.cu.

FlashAttention-3 (Shah et al. 2024, arXiv 2407.08608) over the paged cache, for float16 and bfloat16.
"""

import torch

from pagedchat.jit.driver import gpu
from pagedchat.jit.launch import f32, get_kernel, i32
from pagedchat.ops.attention.options import AttentionOptions
from pagedchat.ops.attention.wgmma_plan import TILES, choose_tile, max_items
from pagedchat.ops.common.choices import BLOCK_SIZES
from pagedchat.ops.common.launch import address, element_name, stream_of

NAME = "prefill_wgmma"


def supported(query: torch.Tensor, key_cache: torch.Tensor, options: AttentionOptions) -> bool:
    """Whether the kernel can do it: a Hopper GPU, 16-bit elements, a cache without gaps, a scale above 0."""
    return (
        gpu(query.device.index).compute_capability == (9, 0)
        and query.dtype in (torch.float16, torch.bfloat16)
        and query.shape[2] in TILES
        and key_cache.shape[3] in BLOCK_SIZES
        and key_cache.is_contiguous()
        and options.scale > 0.0
    )


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
    """Launch the kernel. Arguments as in `paged_prefill`, checked and readable by 16 bytes."""
    num_tokens, num_heads, head_size = query.shape
    num_kv_heads, block_size = key_cache.shape[1], key_cache.shape[3]
    group_size, device = num_heads // num_kv_heads, gpu(query.device.index)
    tile = choose_tile(head_size, options.cap is not None or options.alibi_slopes is not None)
    kernel = get_kernel(
        NAME,
        device.index,
        NAME,
        ELEMENT=element_name(query.dtype),
        HEAD_SIZE=head_size,
        BLOCK_SIZE=block_size,
        GROUP_SIZE=group_size,
        SOFT_CAP=int(options.cap is not None),
        ALIBI=int(options.alibi_slopes is not None),
        **tile.constants,
    )
    shared_bytes = tile.shared_bytes(head_size)
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
        address(options.alibi_slopes),
        i32(len(seq_lens)),
        i32(num_kv_heads),
        i32(block_tables.stride(0)),
        output.stride(0),
        output.stride(1),
        query.stride(0),
        query.stride(1),
        f32(options.scale),
        f32(options.cap or 0.0),
        i32(options.window),
    )
    rows = min(num_tokens, max_query_len * len(seq_lens)) * group_size
    items = max_items(tile, rows, len(seq_lens)) * num_kv_heads
    grid = min(items, device.num_multiprocessors)
    kernel.launch(grid, tile.threads, args, stream=stream_of(query), shared_bytes=shared_bytes, overlap=overlap)
