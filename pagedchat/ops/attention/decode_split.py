"""Decode on tensor cores: one query token per sequence, the sequence split over the grid.

PagedAttention (Kwon et al. 2023, arXiv 2309.06180) with the split of flash-decoding (Dao et al. 2023), over the
cache layout of `ops.cache.layout`. 16-bit element types; `decode_simt` does the others.
"""

from dataclasses import dataclass
from math import prod

import torch

from pagedchat.jit.driver import gpu
from pagedchat.jit.launch import f32, get_kernel, i32
from pagedchat.ops.attention.call import AttentionCall, check_call
from pagedchat.ops.attention.decode_grid import TILE_TOKENS, DecodeShape, SplitPlan
from pagedchat.ops.attention.decode_plan import MAX_TILES, plan_split
from pagedchat.ops.attention.decode_simt import decode_simt
from pagedchat.ops.attention.decode_workspace import MOST_HANDED, Parts, handover_places, partial_states
from pagedchat.ops.common.arrivals import arrival_counters
from pagedchat.ops.common.launch import address, can_overlap, on_cuda, stream_of

NAME = "decode_split"


def decode_split(call: AttentionCall, *, max_seq_len: int, num_tokens: int | None = None) -> torch.Tensor:
    """Attend with one query token per sequence.

    Args:
        call: float16 or bfloat16, over such a cache or one of bytes; as many query tokens as sequences.
        max_seq_len: no length is above this one.
        num_tokens: sum of the lengths, if known; the better the split fits.

    Returns:
        `call.output`: `[num_seqs, num_heads, head_size]`.

    Raises:
        ValueError: shapes or types that do not go together.
    """
    check_call(call)
    if not on_cuda(call.query, call.key_cache):
        return decode_simt(call)
    launch_split(call.readable(), max_seq_len, num_tokens)
    return call.output


def launch_split(
    call: AttentionCall,
    max_seq_len: int,
    num_tokens: int | None,
    *,
    any_lengths: bool = False,
    overlap: bool = False,
    writes_new: bool = False,
) -> None:
    """The kernel alone, arguments as in `decode_split`, of a call that is known to be right.

    With `any_lengths` the sizes are what they may become, as where a launch is captured.
    With `overlap` the launch may begin before the kernel before it has ended, which writes the query or the newest
    keys and values; only where that one waits for those before it. With `writes_new` those are not in the cache
    yet: the query is the beginning of `[num_seqs, num_heads + 2 * num_kv_heads, head_size]`, contiguous, with key
    heads and value heads behind it, and the kernel puts them into the slot of each sequence's last token.
    """
    query, shape = call.query, decode_shape(call)
    window, num_seqs = call.options.sliding_window or 0, query.shape[0]
    longest = min(max_seq_len, window + TILE_TOKENS) if window else max_seq_len
    total = num_seqs * longest if num_tokens is None else min(num_tokens, num_seqs * longest)
    num_multiprocessors = gpu(query.device.index).num_multiprocessors
    clusters = can_overlap(query.device)  # the same GPUs have both
    plan = plan_split(
        shape, num_seqs, longest, total, num_multiprocessors, any_lengths=any_lengths, clusters=clusters
    )
    launch_on_splits(call, shape, plan, overlap=overlap, writes_new=writes_new)


def decode_shape(call: AttentionCall) -> DecodeShape:
    """What plans are made for."""
    num_kv_heads, (_, num_heads, head_size) = call.key_cache.shape[1], call.query.shape
    return DecodeShape(num_kv_heads, num_heads // num_kv_heads, head_size, call.key_cache.itemsize)


@dataclass(frozen=True, slots=True)
class SharedParts:
    """Of sequences, that a launch leaves for the next one."""

    lens: torch.Tensor
    """`[num_seqs]`, int32: tokens that were attended to."""
    plan: SplitPlan
    parts: Parts
    """`partial_states` for the splits of that plan and of what follows."""


def launch_on_splits(
    call: AttentionCall,
    shape: DecodeShape,
    plan: SplitPlan,
    *,
    shared: SharedParts | None = None,
    overlap: bool = False,
    writes_new: bool = False,
) -> None:
    """The kernel with a split that is worked out already; see kernels/attention/decode_split.cu.

    Args:
        call: as for `launch_split`.
        shape: of the call.
        plan: the split, of own parts if there are shared ones.
        shared: what the launch before this one does, if it does something.
        overlap, writes_new: as for `launch_split`.
    """
    query, key_cache, value_cache, output, options = (
        call.query, call.key_cache, call.value_cache, call.output, call.options,
    )  # fmt: skip
    num_seqs, grid_heads, num_splits = query.shape[0], shape.num_kv_heads * shape.row_blocks, plan.num_splits
    early, is_whole = can_overlap(query.device), shared is None and options.sliding_window is None
    is_fresh, gathers = writes_new or (overlap and early), plan.gathers and early and shared is None
    hands_over = is_fresh and early and is_whole and not gathers and 1 < num_splits <= MOST_HANDED
    kernel = get_kernel(
        NAME,
        query.device.index,
        NAME,
        **call.constants,
        SINKS=options.has_sinks,
        CACHE_KIND=call.cache_kind,
        NUM_WARPS=plan.num_warps,
        WHOLE_CONTEXT=int(is_whole),
        INPUT_IS_FRESH=int(is_fresh),
        WRITES_NEW=int(writes_new),
        EVEN_SPLITS=int(plan.is_even),
        HANDS_OVER=int(hands_over),
    )
    grid, num_threads = (num_splits, grid_heads, num_seqs), 32 * plan.num_warps
    if gathers:  # a cluster waits until there is room for all of it, and the next one until that has ended
        gathers = num_splits * kernel.active_clusters(num_splits, num_threads) >= prod(grid)
    asks_ahead = is_fresh and prod(grid) <= _at_a_time(query, shape, plan)  # meanwhile it waits
    parts = shared.parts if shared else _parts(query, 1 if gathers else num_splits, hands_over=hands_over)
    arrivals = arrival_counters(query.device, num_seqs * grid_heads).data_ptr() if num_splits > 1 else 0
    args = (
        output.data_ptr(),
        address(call.lse),
        parts[0].data_ptr(),
        parts[1].data_ptr(),
        arrivals,
        query.data_ptr(),
        key_cache.data_ptr(),
        value_cache.data_ptr(),
        call.block_tables.data_ptr(),
        call.seq_lens.data_ptr(),
        address(shared.lens if shared else None),
        address(options.alibi_slopes),
        address(options.sinks),
        i32(call.block_tables.stride(0)),
        i32(shape.num_kv_heads),
        i32(num_splits + (shared.plan.num_splits if shared else 0)),
        key_cache.stride(0),
        value_cache.stride(0),
        query.stride(0),
        query.stride(1),
        output.stride(0),
        output.stride(1),
        i32(plan.tiles_per_split),
        i32(shared.plan.tiles_per_split if shared else MAX_TILES),
        i32(options.sliding_window or 0),
        i32(asks_ahead),
        f32(options.scale),
        f32(options.cap or 0.0),
    )
    kernel.launch(
        grid,
        num_threads,
        args,
        stream=stream_of(query),
        overlap=(overlap or shared is not None) and early,
        cluster=num_splits if gathers else 1,
    )


def _at_a_time(query: torch.Tensor, shape: DecodeShape, plan: SplitPlan) -> int:
    """Thread blocks that the GPU holds."""
    return shape.resident_thread_blocks(plan.num_warps) * gpu(query.device.index).num_multiprocessors


def _parts(query: torch.Tensor, num_splits: int, *, hands_over: bool) -> Parts:
    """Where thread blocks leave what they have of a row."""
    return handover_places(query, num_splits) if hands_over else partial_states(query, num_splits)
