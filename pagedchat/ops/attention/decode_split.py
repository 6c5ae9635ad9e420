"""Decode on tensor cores: one query token per sequence, the sequence split over the grid.

PagedAttention (Kwon et al. 2023, arXiv 2309.06180) with the split of flash-decoding (Dao et al. 2023), over the
cache layout of `ops.cache.layout`. 16-bit element types; `decode_simt` does the others.
"""

from typing import Any

import torch

from pagedchat.jit.driver import gpu
from pagedchat.jit.launch import Kernel, f32, get_kernel, i32
from pagedchat.ops.attention.decode_checks import check_decode
from pagedchat.ops.attention.decode_plan import MAX_TILES, TILE_TOKENS, DecodeShape, plan_split
from pagedchat.ops.attention.decode_simt import decode_simt
from pagedchat.ops.attention.decode_workspace import arrival_counters, partial_states
from pagedchat.ops.attention.options import AttentionOptions
from pagedchat.ops.common.launch import address, can_overlap, element_name, on_cuda, stream_of, with_whole_rows

NAME = "decode_split"


def decode_split(
    query: torch.Tensor,
    key_cache: torch.Tensor,
    value_cache: torch.Tensor,
    block_tables: torch.Tensor,
    seq_lens: torch.Tensor,
    options: AttentionOptions,
    *,
    max_seq_len: int,
    num_tokens: int | None = None,
    output: torch.Tensor | None = None,
    lse: torch.Tensor | None = None,
) -> torch.Tensor:
    """Attend with one query token per sequence.

    Args:
        query: `[num_seqs, num_heads, head_size]`, float16 or bfloat16, any token and head stride.
        key_cache: `[num_blocks, num_kv_heads, head_size / 8, block_size, 8]`.
        value_cache: `[num_blocks, num_kv_heads, head_size, block_size]`.
        block_tables: `[num_seqs, max_blocks_per_seq]`, int32; read up to each sequence's last block.
        seq_lens: `[num_seqs]`, int32, the query token included; 0 gives zeros.
        options: scale, window, soft cap, ALiBi.
        max_seq_len: no length is above this one.
        num_tokens: sum of the lengths, if known; the better the split fits.
        output: like `query`, written; a new one by default.
        lse: `[num_seqs, num_heads]`, float32, gets the log-sum-exp of the scores if given.

    Returns:
        `output`: `[num_seqs, num_heads, head_size]`.

    Raises:
        ValueError: shapes or types that do not go together.
    """
    check_decode(query, key_cache, value_cache, block_tables, seq_lens, options, output, lse)
    if not on_cuda(query, key_cache):
        return decode_simt(query, key_cache, value_cache, block_tables, seq_lens, options, output=output, lse=lse)
    query = with_whole_rows(query)
    target = torch.empty(query.shape, dtype=query.dtype, device=query.device) if output is None else output
    inputs = (query, key_cache, value_cache, block_tables, seq_lens)
    launch_split(*inputs, options, max_seq_len, num_tokens, target, lse)
    return target


def launch_split(
    query: torch.Tensor,
    key_cache: torch.Tensor,
    value_cache: torch.Tensor,
    block_tables: torch.Tensor,
    seq_lens: torch.Tensor,
    options: AttentionOptions,
    max_seq_len: int,
    num_tokens: int | None,
    output: torch.Tensor,
    lse: torch.Tensor | None,
    overlap: bool = False,
    writes_new: bool = False,
) -> None:
    """The kernel alone, arguments as in `decode_split`; `output` is given.

    With `overlap` the launch may begin before the kernel before it has ended, which writes the query or the newest
    keys and values; only where that one waits for those before it. With `writes_new` those are not in the cache
    yet: the query is the beginning of `[num_seqs, num_heads + 2 * num_kv_heads, head_size]`, contiguous, with key
    heads and value heads behind it, and the kernel puts them into the slot of each sequence's last token.
    """
    shape = decode_shape(query, key_cache)
    window = options.sliding_window or 0
    longest = min(max_seq_len, window + TILE_TOKENS) if window else max_seq_len
    total = len(query) * longest if num_tokens is None else min(num_tokens, len(query) * longest)
    plan = plan_split(shape, len(query), longest, total, gpu(query.device.index).num_multiprocessors)
    partial = partial_states(query, plan.num_splits)
    launch_on_splits(
        query,
        key_cache,
        value_cache,
        block_tables,
        seq_lens,
        None,
        options,
        shape=shape,
        num_warps=plan.num_warps,
        num_splits=plan.num_splits,
        tiles_per_split=plan.tiles_per_split,
        shared_tiles_per_split=MAX_TILES,
        max_parts=plan.num_splits,
        partial=partial,
        output=output,
        lse=lse,
        input_is_fresh=writes_new or (overlap and can_overlap(query.device)),
        overlap=overlap,
        writes_new=writes_new,
    )


def decode_shape(query: torch.Tensor, key_cache: torch.Tensor) -> DecodeShape:
    """Of `[num_seqs, num_heads, head_size]` and the key cache."""
    num_kv_heads = key_cache.shape[1]
    return DecodeShape(num_kv_heads, query.shape[1] // num_kv_heads, query.shape[2])


def launch_on_splits(
    query: torch.Tensor,
    key_cache: torch.Tensor,
    value_cache: torch.Tensor,
    block_tables: torch.Tensor,
    seq_lens: torch.Tensor,
    shared_lens: torch.Tensor | None,
    options: AttentionOptions,
    *,
    shape: DecodeShape,
    num_warps: int,
    num_splits: int,
    tiles_per_split: int,
    shared_tiles_per_split: int,
    max_parts: int,
    partial: tuple[torch.Tensor, torch.Tensor],
    output: torch.Tensor,
    lse: torch.Tensor | None,
    input_is_fresh: bool = False,
    overlap: bool = False,
    writes_new: bool = False,
) -> None:
    """The kernel with a split that is worked out already; see kernels/attention/decode_split.cu."""
    num_seqs, num_kv_heads = len(query), key_cache.shape[1]
    grid_heads = num_kv_heads * shape.row_blocks
    whole = shared_lens is None and options.sliding_window is None
    constants = {
        "WHOLE_CONTEXT": int(whole),
        "INPUT_IS_FRESH": int(input_is_fresh),
        "WRITES_NEW": int(writes_new),
    }
    kernel = decode_kernel(NAME, query, key_cache, options, num_warps, **constants)
    arrivals = arrival_counters(query.device, num_seqs * grid_heads).data_ptr() if num_splits > 1 else 0
    args = (
        output.data_ptr(),
        address(lse),
        partial[0].data_ptr(),
        partial[1].data_ptr(),
        arrivals,
        query.data_ptr(),
        key_cache.data_ptr(),
        value_cache.data_ptr(),
        block_tables.data_ptr(),
        seq_lens.data_ptr(),
        address(shared_lens),
        address(options.alibi_slopes),
        i32(block_tables.stride(0)),
        i32(num_kv_heads),
        i32(max_parts),
        key_cache.stride(0),
        value_cache.stride(0),
        query.stride(0),
        query.stride(1),
        output.stride(0),
        output.stride(1),
        i32(tiles_per_split),
        i32(shared_tiles_per_split),
        i32(options.sliding_window or 0),
        f32(options.scale),
        f32(options.cap or 0.0),
    )
    kernel.launch(
        (num_splits, grid_heads, num_seqs),
        32 * num_warps,
        args,
        stream=stream_of(query),
        overlap=(overlap or shared_lens is not None) and can_overlap(query.device),
    )


def decode_kernel(
    name: str,
    query: torch.Tensor,
    key_cache: torch.Tensor,
    options: AttentionOptions,
    num_warps: int,
    **defines: Any,
) -> Kernel:
    """The variant of a decode kernel that these tensors need; `defines` are constants of this kernel alone."""
    return get_kernel(
        name,
        query.device.index,
        ELEMENT=element_name(query.dtype),
        HEAD_SIZE=query.shape[2],
        BLOCK_SIZE=key_cache.shape[3],
        GROUP_SIZE=query.shape[1] // key_cache.shape[1],
        NUM_WARPS=num_warps,
        SOFT_CAP=int(options.cap is not None),
        ALIBI=int(options.alibi_slopes is not None),
        **defines,
    )
