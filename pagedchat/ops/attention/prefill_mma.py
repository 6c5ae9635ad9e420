"""Prefill on tensor cores through `mma`: launches kernels/attention/prefill_mma.cu.

FlashAttention-2 (Dao 2023, arXiv 2307.08691) over the paged cache, for float16 and bfloat16.
"""

import torch

from pagedchat.jit.driver import gpu
from pagedchat.jit.launch import f32, get_kernel, i32
from pagedchat.ops.attention import prefill_plan
from pagedchat.ops.attention.call import AttentionCall
from pagedchat.ops.attention.prefill_plan import (
    MERGE_DIMS,
    MERGE_THREADS,
    PART_KEYS,
    PrefillTile,
    choose_invariant_tile,
    choose_parts,
    choose_splits,
    choose_tile,
    max_thread_blocks,
)
from pagedchat.ops.cache.byte_cache import is_byte_cache
from pagedchat.ops.common.choices import BLOCK_SIZES, HEAD_SIZES
from pagedchat.ops.common.launch import address, ceil_div, element_name, has_tensor_cores, stream_of

NAME = "prefill_mma"
MERGE = "prefill_merge"


def supported(call: AttentionCall) -> bool:
    """Whether the kernel can do it: 16-bit elements on tensor cores, a cache without gaps, a scale above 0."""
    head_size, block_size = call.query.shape[2], call.key_cache.shape[3]
    if not has_tensor_cores(call.query) or call.options.scale <= 0.0 or not _is_whole(call.key_cache):
        return False
    if head_size not in HEAD_SIZES or block_size not in BLOCK_SIZES:
        return False
    return choose_tile(head_size, block_size, 1, gpu(call.query.device.index).shared_bytes) is not None


def _is_whole(cache: torch.Tensor) -> bool:
    """Whether blocks follow each other without gaps; those of bytes with nothing but their scales behind them."""
    return is_byte_cache(cache) or cache.is_contiguous()


def launch(
    call: AttentionCall,
    cu_seqlens_q: torch.Tensor,
    max_query_len: int,
    *,
    overlap: bool = False,
    batch_invariant: bool = False,
) -> None:
    """Launch the kernel, and the one that merges if the keys are split over the grid; see `prefill.Launch`.

    `batch_invariant`: a row's numbers follow from its own sequence alone, whatever the chunks are.
    """
    query, output, options = call.query, call.output, call.options
    num_tokens, _, head_size = query.shape
    num_kv_heads, block_size = call.key_cache.shape[1], call.key_cache.shape[3]
    device = gpu(query.device.index)
    tile = _tile(call, max_query_len, batch_invariant)
    assert tile is not None, "launched without asking `supported`"  # noqa: S101
    thread_blocks = _thread_blocks(call, tile)
    if batch_invariant:
        max_keys = call.block_tables.shape[1] * block_size
        num_splits = choose_parts(thread_blocks, max_keys, device.num_multiprocessors, 4 * query.numel())
    else:
        num_splits = choose_splits(thread_blocks, _max_keys(call, max_query_len), device.num_multiprocessors)
    partial = _partial(query, num_splits)
    kernel = get_kernel(
        NAME,
        device.index,
        NAME,
        **call.constants,
        **tile.constants,
        SPLIT_KEYS=int(num_splits > 1),
        PART_KEYS=PART_KEYS if batch_invariant else 0,
        SINKS=options.has_sinks,
        CACHE_KIND=call.cache_kind,
    )
    shared_bytes = tile.shared_bytes(head_size, block_size)
    kernel.allow_shared(shared_bytes)
    args = (
        output.data_ptr(),
        partial[1].data_ptr() if num_splits > 1 else address(call.lse),
        partial[0].data_ptr(),
        query.data_ptr(),
        call.key_cache.data_ptr(),
        call.value_cache.data_ptr(),
        call.block_tables.data_ptr(),
        call.seq_lens.data_ptr(),
        cu_seqlens_q.data_ptr(),
        address(options.alibi_slopes),
        address(options.sinks),
        i32(num_tokens),
        i32(len(call.seq_lens)),
        i32(num_kv_heads),
        i32(call.block_tables.stride(0)),
        query.stride(0),
        query.stride(1),
        output.stride(0),
        output.stride(1),
        i32(options.window),
        f32(options.scale),
        f32(options.cap or 0.0),
    )
    grid = (thread_blocks, num_splits)
    kernel.launch(
        grid, 32 * tile.num_warps, args, stream=stream_of(query), shared_bytes=shared_bytes, overlap=overlap
    )
    if num_splits > 1:
        _merge(call, partial, cu_seqlens_q, overlap, batch_invariant)


def splits_pay(call: AttentionCall, max_query_len: int) -> bool:
    """Whether it is quicker than a kernel that does not share keys out, of a call that is `supported`."""
    tile = _tile(call, max_query_len, batch_invariant=False)
    if tile is None:
        return False
    sizes = call.query.shape[2], _thread_blocks(call, tile), _max_keys(call, max_query_len)
    return prefill_plan.splits_pay(*sizes, gpu(call.query.device.index).num_multiprocessors)


def _thread_blocks(call: AttentionCall, tile: PrefillTile) -> int:
    """Without a split."""
    num_tokens, num_heads, _ = call.query.shape
    num_kv_heads = call.key_cache.shape[1]
    return num_kv_heads * max_thread_blocks(tile, num_tokens * num_heads // num_kv_heads, len(call.seq_lens))


def _max_keys(call: AttentionCall, max_query_len: int) -> int:
    """That a tile of queries sees, at most."""
    max_keys = call.block_tables.shape[1] * call.key_cache.shape[3]
    return min(max_keys, call.options.window + max_query_len)


def _tile(call: AttentionCall, max_query_len: int, batch_invariant: bool) -> PrefillTile | None:
    head_size, block_size = call.query.shape[2], call.key_cache.shape[3]
    shared_limit = gpu(call.query.device.index).shared_bytes
    if batch_invariant:
        return choose_invariant_tile(head_size, block_size, shared_limit)
    num_rows = max_query_len * call.query.shape[1] // call.key_cache.shape[1]
    return choose_tile(head_size, block_size, num_rows, shared_limit)


def _partial(query: torch.Tensor, num_splits: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Results `[num_splits, num_tokens, num_heads, head_size]` and log-sum-exps, float32; empty without a split."""
    shape = (num_splits if num_splits > 1 else 0, *query.shape)
    results = torch.empty(shape, dtype=torch.float32, device=query.device)
    return results, torch.empty(shape[:3], dtype=torch.float32, device=query.device)


def _merge(
    call: AttentionCall,
    partial: tuple[torch.Tensor, torch.Tensor],
    cu_seqlens_q: torch.Tensor,
    overlap: bool,
    in_order: bool,
) -> None:
    output = call.output
    num_splits, num_tokens, num_heads, head_size = partial[0].shape
    kernel = get_kernel(
        MERGE,
        output.device.index,
        ELEMENT=element_name(output.dtype),
        HEAD_SIZE=head_size,
        IN_ORDER=int(in_order),
        SINKS=call.options.has_sinks,
    )
    args = (
        output.data_ptr(),
        address(call.lse),
        partial[0].data_ptr(),
        partial[1].data_ptr(),
        cu_seqlens_q.data_ptr(),
        address(call.options.sinks),
        i32(num_tokens),
        i32(len(cu_seqlens_q) - 1),
        i32(num_heads),
        i32(num_splits),
        output.stride(0),
        output.stride(1),
    )
    grid = ceil_div(num_tokens * num_heads * (head_size // MERGE_DIMS), MERGE_THREADS)
    kernel.launch(grid, MERGE_THREADS, args, stream=stream_of(output), overlap=overlap)
