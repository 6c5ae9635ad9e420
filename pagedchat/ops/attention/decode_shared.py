"""Decode for groups of sequences that begin with the same blocks: the shared prefix is read once for all of them.

Two launches: kernels/attention/decode_shared.cu leaves the prefix's part of every row, then the decode kernel
attends to each sequence's own tokens and merges (Hydragen, Juravsky et al. 2024, arXiv 2402.05099).
"""

import torch

from pagedchat.jit.driver import gpu
from pagedchat.jit.launch import f32, i32
from pagedchat.ops.attention.decode_checks import check_decode
from pagedchat.ops.attention.decode_plan import plan_shared
from pagedchat.ops.attention.decode_simt import decode_simt
from pagedchat.ops.attention.decode_split import decode_kernel, decode_shape, launch_on_splits
from pagedchat.ops.attention.decode_workspace import partial_states
from pagedchat.ops.attention.options import AttentionOptions
from pagedchat.ops.common.checks import check_dtype, check_shape
from pagedchat.ops.common.launch import address, can_overlap, on_cuda, stream_of, with_whole_rows

NAME = "decode_shared"


def decode_shared(
    query: torch.Tensor,
    key_cache: torch.Tensor,
    value_cache: torch.Tensor,
    block_tables: torch.Tensor,
    seq_lens: torch.Tensor,
    shared_lens: torch.Tensor,
    group_starts: torch.Tensor,
    options: AttentionOptions,
    *,
    max_own_len: int,
    max_shared_len: int,
    max_group_size: int,
    output: torch.Tensor | None = None,
    lse: torch.Tensor | None = None,
) -> torch.Tensor:
    """Attend with one query token per sequence; the result is that of `decode_split`.

    Args:
        query: `[num_seqs, num_heads, head_size]`, float16 or bfloat16, any token and head stride.
        key_cache: `[num_blocks, num_kv_heads, head_size / 8, block_size, 8]`.
        value_cache: `[num_blocks, num_kv_heads, head_size, block_size]`.
        block_tables: `[num_seqs, max_blocks_per_seq]`, int32; the members of a group have the same first blocks.
        seq_lens: `[num_seqs]`, int32, whole lengths.
        shared_lens: `[num_seqs]`, int32: shared tokens, a multiple of the block size, below the sequence's length,
            the same for all members of a group; 0 where nothing is shared.
        group_starts: `[num_groups + 1]`, int32: group i is sequences `group_starts[i]` up to
            `group_starts[i + 1]`; every sequence belongs to one.
        options: scale, soft cap, ALiBi; no window.
        max_own_len, max_shared_len, max_group_size: no sequence has a larger `decode_plan.own_len` or more shared
            tokens, and no group more members.
        output: like `query`, written; a new one by default.
        lse: `[num_seqs, num_heads]`, float32, gets the log-sum-exp of the scores if given.

    Returns:
        `output`: `[num_seqs, num_heads, head_size]`.

    Raises:
        ValueError: shapes or types that do not go together, or a sliding window.
    """
    check_decode(query, key_cache, value_cache, block_tables, seq_lens, options, output, lse)
    check_shape("shared_lens", shared_lens, len(query))
    check_dtype("shared_lens", shared_lens, torch.int32)
    check_shape("group_starts", group_starts, None)
    check_dtype("group_starts", group_starts, torch.int32)
    if options.sliding_window is not None:
        raise ValueError("sliding_window cannot be combined with a shared prefix")
    if not on_cuda(query, key_cache):
        return decode_simt(query, key_cache, value_cache, block_tables, seq_lens, options, output=output, lse=lse)
    query = with_whole_rows(query)
    target = torch.empty(query.shape, dtype=query.dtype, device=query.device) if output is None else output
    launch_shared(
        query,
        key_cache,
        value_cache,
        block_tables,
        seq_lens,
        shared_lens,
        group_starts,
        options,
        max_own_len=max_own_len,
        max_shared_len=max_shared_len,
        max_group_size=max_group_size,
        output=target,
        lse=lse,
    )
    return target


def launch_shared(
    query: torch.Tensor,
    key_cache: torch.Tensor,
    value_cache: torch.Tensor,
    block_tables: torch.Tensor,
    seq_lens: torch.Tensor,
    shared_lens: torch.Tensor,
    group_starts: torch.Tensor,
    options: AttentionOptions,
    *,
    max_own_len: int,
    max_shared_len: int,
    max_group_size: int,
    output: torch.Tensor,
    lse: torch.Tensor | None = None,
    overlap: bool = False,
    writes_new: bool = False,
) -> None:
    """The two kernels alone, arguments as in `decode_shared`; `output` is given.

    Groups without members and sequences that belong to none are allowed here; the latter share nothing. `overlap`
    and `writes_new` as in `decode_split.launch_split`.
    """
    shape, num_groups = decode_shape(query, key_cache), len(group_starts) - 1
    sizes = (len(query), max_own_len, max_shared_len, max_group_size, num_groups)
    plan = plan_shared(shape, *sizes, gpu(query.device.index).num_multiprocessors)
    max_parts = plan.shared.num_splits + plan.own.num_splits
    partial = partial_states(query, max_parts)
    _launch_prefix(
        query,
        key_cache,
        value_cache,
        block_tables,
        seq_lens,
        shared_lens,
        group_starts,
        options,
        num_warps=plan.shared.num_warps,
        tiles_per_split=plan.shared.tiles_per_split,
        grid=(plan.shared.num_splits, plan.grid_heads),
        max_parts=max_parts,
        partial=partial,
        input_is_fresh=overlap and can_overlap(query.device),
    )
    launch_on_splits(
        query,
        key_cache,
        value_cache,
        block_tables,
        seq_lens,
        shared_lens,
        options,
        shape=shape,
        num_warps=plan.own.num_warps,
        num_splits=plan.own.num_splits,
        tiles_per_split=plan.own.tiles_per_split,
        shared_tiles_per_split=plan.shared.tiles_per_split,
        max_parts=max_parts,
        partial=partial,
        output=output,
        lse=lse,
        input_is_fresh=writes_new,
        writes_new=writes_new,
    )


def _launch_prefix(
    query: torch.Tensor,
    key_cache: torch.Tensor,
    value_cache: torch.Tensor,
    block_tables: torch.Tensor,
    seq_lens: torch.Tensor,
    shared_lens: torch.Tensor,
    group_starts: torch.Tensor,
    options: AttentionOptions,
    *,
    num_warps: int,
    tiles_per_split: int,
    grid: tuple[int, int],
    max_parts: int,
    partial: tuple[torch.Tensor, torch.Tensor],
    input_is_fresh: bool,
) -> None:
    kernel = decode_kernel(NAME, query, key_cache, options, num_warps, INPUT_IS_FRESH=int(input_is_fresh))
    args = (
        partial[0].data_ptr(),
        partial[1].data_ptr(),
        query.data_ptr(),
        key_cache.data_ptr(),
        value_cache.data_ptr(),
        block_tables.data_ptr(),
        seq_lens.data_ptr(),
        shared_lens.data_ptr(),
        group_starts.data_ptr(),
        address(options.alibi_slopes),
        i32(len(group_starts) - 1),
        i32(block_tables.stride(0)),
        i32(key_cache.shape[1]),
        i32(max_parts),
        key_cache.stride(0),
        value_cache.stride(0),
        query.stride(0),
        query.stride(1),
        i32(tiles_per_split),
        f32(options.scale),
        f32(options.cap or 0.0),
    )
    kernel.launch(grid, 32 * num_warps, args, stream=stream_of(query), overlap=input_is_fresh)
