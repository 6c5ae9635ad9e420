"""Decode on CUDA cores: one query token per sequence, one pass over its keys and values.

The op of PagedAttention (Kwon et al. 2023, arXiv 2309.06180) for any element type on any GPU, float32 inside. In
16-bit types, and with the heads in groups, `decode_split` is faster where there are tensor cores for it.
"""

import torch

from pagedchat.jit.driver import gpu
from pagedchat.jit.launch import f32, get_kernel, i32
from pagedchat.ops.attention.call import AttentionCall, check_call
from pagedchat.ops.attention.decode_workspace import partial_states
from pagedchat.ops.attention.reference import attend_texts
from pagedchat.ops.attention.simt_plan import NUM_WARPS, num_parts, passes
from pagedchat.ops.common.arrivals import arrival_counters
from pagedchat.ops.common.launch import address, on_cuda, stream_of

NAME = "decode_simt"


def decode_simt(call: AttentionCall) -> torch.Tensor:
    """Attend with one query token per sequence.

    Args:
        call: any element type; as many query tokens as sequences.

    Returns:
        `call.output`: `[num_seqs, num_heads, head_size]`.

    Raises:
        ValueError: shapes or types that do not go together.
    """
    check_call(call)
    if not on_cuda(call.query, call.key_cache):
        attend_texts(call, [1] * len(call.query))
    elif call.cache_kind:
        raise ValueError(f"no kernel on CUDA cores reads a cache of {call.key_cache.dtype}")
    elif len(call.query):
        _launch(call.readable())
    return call.output


def _launch(call: AttentionCall) -> None:
    query, key_cache, value_cache, output, options = (
        call.query, call.key_cache, call.value_cache, call.output, call.options,
    )  # fmt: skip
    num_seqs, num_heads, head_size = query.shape
    num_kv_heads, block_size = key_cache.shape[1], key_cache.shape[3]
    columns = num_kv_heads * passes(num_heads // num_kv_heads, head_size, query.element_size())
    window = options.window
    longest = min(call.block_tables.shape[1] * block_size, window + block_size)
    parts = num_parts(columns * num_seqs, longest, gpu(query.device.index).num_multiprocessors)
    part_output, part_state = partial_states(query, parts)
    kernel = get_kernel(
        NAME, query.device.index, NAME, **call.constants, SINKS=options.has_sinks, NUM_WARPS=NUM_WARPS
    )
    args = (
        output.data_ptr(),
        address(call.lse),
        part_output.data_ptr(),
        part_state.data_ptr(),
        arrival_counters(query.device, columns * num_seqs).data_ptr() if parts > 1 else 0,
        query.data_ptr(),
        key_cache.data_ptr(),
        value_cache.data_ptr(),
        call.block_tables.data_ptr(),
        call.seq_lens.data_ptr(),
        address(options.alibi_slopes),
        address(options.sinks),
        i32(call.block_tables.stride(0)),
        i32(num_kv_heads),
        i32(NUM_WARPS),
        key_cache.stride(0),
        value_cache.stride(0),
        query.stride(0),
        query.stride(1),
        output.stride(0),
        output.stride(1),
        i32(window),
        f32(options.scale),
        f32(options.cap or 0.0),
    )
    kernel.launch((columns, parts, num_seqs), 32 * NUM_WARPS, args, stream=stream_of(query))
