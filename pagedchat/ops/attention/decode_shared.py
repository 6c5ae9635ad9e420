"""Decode for groups of sequences that begin with the same blocks: the shared prefix is read once for all of them.

Two launches: kernels/attention/decode_shared.cu leaves the prefix's part of every row, then the decode kernel
attends to each sequence's own tokens and merges (Hydragen, Juravsky et al. 2024, arXiv 2402.05099).
"""

import torch

from pagedchat.jit.driver import gpu
from pagedchat.jit.launch import f32, get_kernel, i32
from pagedchat.ops.attention.call import AttentionCall, check_call
from pagedchat.ops.attention.decode_plan import SharedPlan, plan_shared
from pagedchat.ops.attention.decode_simt import decode_simt
from pagedchat.ops.attention.decode_split import SharedParts, decode_shape, launch_on_splits
from pagedchat.ops.attention.decode_workspace import partial_states
from pagedchat.ops.common.checks import check_dtype, check_shape
from pagedchat.ops.common.launch import address, can_overlap, on_cuda, stream_of

NAME = "decode_shared"


def decode_shared(
    call: AttentionCall,
    shared_lens: torch.Tensor,
    group_starts: torch.Tensor,
    *,
    max_own_len: int,
    max_shared_len: int,
    max_group_size: int,
) -> torch.Tensor:
    """Attend with one query token per sequence; the result is that of `decode_split`.

    Args:
        call: float16 or bfloat16, without a window; the members of a group have the same first blocks.
        shared_lens: `[num_seqs]`, int32: shared tokens, a multiple of the block size, below the sequence's length,
            the same for all members of a group; 0 where nothing is shared.
        group_starts: `[num_groups + 1]`, int32: group i is sequences `group_starts[i]` up to
            `group_starts[i + 1]`; every sequence belongs to one.
        max_own_len, max_shared_len, max_group_size: no sequence has a larger `decode_plan.own_len` or more shared
            tokens, and no group more members.

    Returns:
        `call.output`: `[num_seqs, num_heads, head_size]`.

    Raises:
        ValueError: shapes or types that do not go together, or a sliding window.
    """
    check_call(call)
    check_shape("shared_lens", shared_lens, len(call.query))
    check_dtype("shared_lens", shared_lens, torch.int32)
    check_shape("group_starts", group_starts, None)
    check_dtype("group_starts", group_starts, torch.int32)
    if call.options.sliding_window is not None:
        raise ValueError("sliding_window cannot be combined with a shared prefix")
    if not on_cuda(call.query, call.key_cache):
        return decode_simt(call)
    if call.cache_kind:
        raise ValueError(f"no kernel reads a shared prefix from a cache of {call.key_cache.dtype}")
    launch_shared(
        call.readable(),
        shared_lens,
        group_starts,
        max_own_len=max_own_len,
        max_shared_len=max_shared_len,
        max_group_size=max_group_size,
    )
    return call.output


def launch_shared(
    call: AttentionCall,
    shared_lens: torch.Tensor,
    group_starts: torch.Tensor,
    *,
    max_own_len: int,
    max_shared_len: int,
    max_group_size: int,
    any_lengths: bool = False,
    overlap: bool = False,
    writes_new: bool = False,
) -> None:
    """The two kernels alone, arguments as in `decode_shared`, of a call that is known to be right.

    Groups without members and sequences that belong to none are allowed here; the latter share nothing.
    `any_lengths`, `overlap` and `writes_new` as in `decode_split.launch_split`.
    """
    query, shape = call.query, decode_shape(call)
    sizes = (len(query), max_own_len, max_shared_len, max_group_size, len(group_starts) - 1)
    num_multiprocessors = gpu(query.device.index).num_multiprocessors
    plan = plan_shared(shape, *sizes, num_multiprocessors, any_lengths=any_lengths)
    partial = partial_states(query, plan.max_parts)
    is_fresh = overlap and can_overlap(query.device)
    _launch_prefix(call, shared_lens, group_starts, plan, partial, input_is_fresh=is_fresh)
    shared = SharedParts(shared_lens, plan.shared, partial)
    launch_on_splits(call, shape, plan.own, shared=shared, writes_new=writes_new)


def _launch_prefix(
    call: AttentionCall,
    shared_lens: torch.Tensor,
    group_starts: torch.Tensor,
    plan: SharedPlan,
    partial: tuple[torch.Tensor, torch.Tensor],
    *,
    input_is_fresh: bool,
) -> None:
    query, key_cache, value_cache, options = call.query, call.key_cache, call.value_cache, call.options
    kernel = get_kernel(
        NAME,
        query.device.index,
        NAME,
        **call.constants,
        NUM_WARPS=plan.shared.num_warps,
        INPUT_IS_FRESH=int(input_is_fresh),
    )
    args = (
        partial[0].data_ptr(),
        partial[1].data_ptr(),
        query.data_ptr(),
        key_cache.data_ptr(),
        value_cache.data_ptr(),
        call.block_tables.data_ptr(),
        call.seq_lens.data_ptr(),
        shared_lens.data_ptr(),
        group_starts.data_ptr(),
        address(options.alibi_slopes),
        i32(len(group_starts) - 1),
        i32(call.block_tables.stride(0)),
        i32(key_cache.shape[1]),
        i32(plan.max_parts),
        key_cache.stride(0),
        value_cache.stride(0),
        query.stride(0),
        query.stride(1),
        i32(plan.shared.tiles_per_split),
        f32(options.scale),
        f32(options.cap or 0.0),
    )
    grid = (plan.shared.num_splits, plan.grid_heads)
    kernel.launch(grid, 32 * plan.shared.num_warps, args, stream=stream_of(query), overlap=input_is_fresh)
