"""Attention: what lies in the cache and belongs to no token is NaN, block tables end in addresses far away."""

from functools import partial

import torch

from pagedchat.ops.attention.call import AttentionOptions
from pagedchat.ops.attention.decode_plan import own_len
from pagedchat.ops.attention.decode_shared import decode_shared
from pagedchat.ops.attention.decode_simt import decode_simt
from pagedchat.ops.attention.decode_split import decode_split
from pagedchat.ops.attention.merge_attn_states import merge_attn_states
from pagedchat.ops.attention.prefill import paged_prefill
from pagedchat.ops.cache.byte_kinds import CacheKind
from tests.ops.attention.changed_case import share
from tests.ops.byte_case import in_bytes
from tests.ops.cuda_layout_case import make_layout_case
from tests.ops.products.small_batch_case import normal
from tests.tools.emulated_ops.op_case import BFLOAT, DTYPES, HALF, NOTHING, SINGLE, Results, in_types

DECODED = [5, 300, 0, 64]
"""A part of a block, parts that several thread blocks attend to, padding, whole blocks."""


def options(*, finished: bool, num_heads: int = 4, sliding_window: int | None = 70) -> AttentionOptions:
    """Of plain scores, or with everything that is done to them."""
    if not finished:
        return AttentionOptions(scale=0.125)
    slopes = torch.tensor([0.5, 0.25, 0.1, 0.01][:num_heads])
    sinks = torch.tensor([2.0, -1.0, 0.0, 5.0][:num_heads])
    return AttentionOptions(scale=0.3, sliding_window=sliding_window, cap=4.0, alibi_slopes=slopes, sinks=sinks)


def decode_on_cuda_cores(dtype: torch.dtype, *, finished: bool) -> Results:
    call = make_layout_case(DECODED, dtype=dtype).call(options(finished=finished))
    return {"output": decode_simt(call), "lse": call.lse}


def decode_on_tensor_cores(dtype: torch.dtype, *, finished: bool) -> Results:
    call = make_layout_case(DECODED, dtype=dtype).call(options(finished=finished))
    return {"output": decode_split(call, max_seq_len=max(DECODED)), "lse": call.lse}


def decode_over_prefixes(dtype: torch.dtype, *, finished: bool) -> Results:
    """Groups of three and two, one sequence by itself; own parts that begin inside of a tile."""
    groups = [(3, 48), (1, 0), (2, 256)]
    case = make_layout_case([49, 78, 65, 9, 300, 257], dtype=dtype)
    shared_lens, group_starts = share(case, groups, block_size=16)
    call = case.call(options(finished=finished, sliding_window=None))
    output = decode_shared(
        call,
        shared_lens,
        group_starts,
        max_own_len=max(map(own_len, case.seq_lens.tolist(), shared_lens.tolist())),
        max_shared_len=256,
        max_group_size=3,
    )
    return {"output": output, "lse": call.lse}


def prefill(
    seq_lens: list[int],
    query_lens: list[int],
    dtype: torch.dtype,
    *,
    finished: bool = False,
    heads: int = 4,
    window: int | None = 70,
    invariant: bool = False,
) -> Results:
    case = make_layout_case(seq_lens, query_lens, num_heads=heads, num_kv_heads=heads // 2, dtype=dtype)
    call = case.call(options(finished=finished, num_heads=heads, sliding_window=window))
    output = paged_prefill(call, case.cu_seqlens_q, max_query_len=case.max_query_len, batch_invariant=invariant)
    return {"output": output, "lse": call.lse}


def decode_over_bytes(kind: CacheKind, head_size: int, dtype: torch.dtype, *, finished: bool) -> Results:
    case = in_bytes(make_layout_case(DECODED, dtype=dtype, head_size=head_size), kind)
    call = case.call(options(finished=finished))
    return {"output": decode_split(call, max_seq_len=max(DECODED)), "lse": call.lse}


def prefill_over_bytes(kind: CacheKind, dtype: torch.dtype, *, finished: bool = False) -> Results:
    case = in_bytes(make_layout_case([40, 9, 70], [3, 9, 1], num_kv_heads=2, dtype=dtype), kind)
    call = case.call(options(finished=finished))
    return {
        "output": paged_prefill(call, case.cu_seqlens_q, max_query_len=case.max_query_len), "lse": call.lse
    }  # fmt: skip


def merge(dtype: torch.dtype) -> Results:
    """Queries without keys on one side, whose output may be anything, or on both."""
    prefix, suffix = (normal(5, 3, 80, device="cpu", dtype=dtype, seed=seed) for seed in (1, 2))
    prefix_lse, suffix_lse = (normal(5, 3, device="cpu", dtype=SINGLE, seed=seed) for seed in (3, 4))
    for side, lse, rows in ((prefix, prefix_lse, [0, 2]), (suffix, suffix_lse, [1, 2])):
        side[rows], lse[rows] = NOTHING, torch.tensor([[-torch.inf], [torch.inf]])
    output, lse = torch.empty_like(prefix), torch.empty_like(prefix_lse)
    merge_attn_states(output, lse, prefix, prefix_lse, suffix, suffix_lse)
    return {"output": output, "lse": lse}


SHORT_CHUNKS = partial(prefill, [40, 9, 70], [3, 9, 1])
SPLIT_KEYS = partial(prefill, [1100, 4], [3, 4], heads=2)
"""Some of the thread blocks that share the keys have none of the second sequence."""
MANY_PARTS = partial(prefill, [4700, 4], [3, 4], heads=2, window=None)
"""More than are merged in one go."""
LONG_CHUNKS = partial(prefill, [200, 9], [70, 9], heads=2)

CASES = [
    *in_types("decode_simt", partial(decode_on_cuda_cores, finished=False), SINGLE, HALF),
    *in_types("decode_simt", partial(decode_on_cuda_cores, finished=True), BFLOAT, about="all options"),
    *in_types("decode_split", partial(decode_on_tensor_cores, finished=False), HALF),
    *in_types("decode_split", partial(decode_on_tensor_cores, finished=True), BFLOAT, about="all options"),
    *in_types("decode_split", partial(decode_over_bytes, "int8", 64, finished=False), HALF, BFLOAT, about="int8"),
    *in_types("decode_split", partial(decode_over_bytes, "fp8", 80, finished=False), HALF, BFLOAT, about="fp8"),
    *in_types("decode_split", partial(decode_over_bytes, "fp8", 64, finished=True), HALF, about="fp8, all options"),
    *in_types("prefill_mma", partial(prefill_over_bytes, "int8"), HALF, BFLOAT, about="int8"),
    *in_types("prefill_mma", partial(prefill_over_bytes, "fp8", finished=True), HALF, BFLOAT, about="fp8"),
    *in_types("decode_shared", partial(decode_over_prefixes, finished=False), HALF),
    *in_types("decode_shared", partial(decode_over_prefixes, finished=True), BFLOAT, about="all but a window"),
    *in_types("prefill_simt", SHORT_CHUNKS, SINGLE),
    *in_types("prefill_simt", partial(SHORT_CHUNKS, finished=True), SINGLE, about="all options"),
    *in_types("prefill_mma", SHORT_CHUNKS, HALF),
    *in_types("prefill_mma", partial(SHORT_CHUNKS, finished=True), BFLOAT, about="all options"),
    *in_types("prefill_mma", partial(LONG_CHUNKS, invariant=True), HALF, about="rows by themselves"),
    *in_types(
        "prefill_mma",
        partial(LONG_CHUNKS, finished=True, invariant=True),
        BFLOAT,
        about="rows by themselves, all options",
    ),
    *in_types("prefill_merge", SPLIT_KEYS, HALF, BFLOAT),
    *in_types("prefill_merge", partial(SPLIT_KEYS, finished=True, window=None), HALF, about="all but a window"),
    *in_types("prefill_merge", partial(MANY_PARTS, finished=True), BFLOAT, about="many parts"),
    *in_types(
        "prefill_merge",
        partial(SPLIT_KEYS, finished=True, window=None, invariant=True),
        HALF,
        about="parts in order",
    ),
    *in_types("prefill_wgmma", LONG_CHUNKS, HALF),
    *in_types("prefill_wgmma", partial(LONG_CHUNKS, finished=True), BFLOAT, about="all options"),
    *in_types("merge_attn_states", merge, *DTYPES),
]
