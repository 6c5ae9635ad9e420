"""Decode on CUDA cores: one query token per sequence, one pass over its keys and values.

The op of PagedAttention (Kwon et al. 2023, arXiv 2309.06180) for any element type on any GPU, float32 inside. In
16-bit types, and with the heads in groups, `decode_split` is faster where there are tensor cores for it.
"""

from functools import cache

import torch

from pagedchat.jit.launch import f32, get_kernel, i32
from pagedchat.ops.attention.decode_checks import check_decode, strided
from pagedchat.ops.attention.decode_workspace import arrival_counters, partial_states
from pagedchat.ops.attention.options import AttentionOptions
from pagedchat.ops.attention.reference import attend_texts
from pagedchat.ops.common.launch import element_name, on_cuda, stream_of

NAME = "decode_simt"
STEP_TOKENS = 32
"""Tokens a warp attends to at a time: `STEP_TOKENS` of kernels/attention/decode_simt.cu."""
NUM_WARPS = 4
"""Of a thread block."""
THREAD_BLOCKS = 4
"""For each multiprocessor; a batch that makes fewer has its sequences split."""
NO_WINDOW = 2**31 - 1


def decode_simt(
    query: torch.Tensor,
    key_cache: torch.Tensor,
    value_cache: torch.Tensor,
    block_tables: torch.Tensor,
    seq_lens: torch.Tensor,
    options: AttentionOptions,
    *,
    output: torch.Tensor | None = None,
    lse: torch.Tensor | None = None,
) -> torch.Tensor:
    """Attend with one query token per sequence.

    Args:
        query: `[num_seqs, num_heads, head_size]`, any token and head stride.
        key_cache: `[num_blocks, num_kv_heads, head_size / x, block_size, x]`, `x` elements are 16 bytes.
        value_cache: `[num_blocks, num_kv_heads, head_size, block_size]`.
        block_tables: `[num_seqs, max_blocks_per_seq]`, int32; read up to each sequence's last block.
        seq_lens: `[num_seqs]`, int32, the query token included; 0 gives zeros.
        options: scale, window, soft cap, ALiBi.
        output: like `query`, written; a new one by default.
        lse: `[num_seqs, num_heads]`, float32, gets the natural log-sum-exp of the scores if given.

    Returns:
        `output`: `[num_seqs, num_heads, head_size]`.

    Raises:
        ValueError: shapes or types that do not go together.
    """
    check_decode(query, key_cache, value_cache, block_tables, seq_lens, options, output, lse)
    target = torch.empty(query.shape, dtype=query.dtype, device=query.device) if output is None else output
    if not on_cuda(query, key_cache):
        one_each = [1] * len(query)
        attend_texts(query, key_cache, value_cache, block_tables, seq_lens, one_each, options, target, lse)
    elif len(query):
        _launch(strided(query), key_cache, value_cache, block_tables, seq_lens, options, target, lse)
    return target


def _launch(
    query: torch.Tensor,
    key_cache: torch.Tensor,
    value_cache: torch.Tensor,
    block_tables: torch.Tensor,
    seq_lens: torch.Tensor,
    options: AttentionOptions,
    output: torch.Tensor,
    lse: torch.Tensor | None,
) -> None:
    num_seqs, num_heads, head_size = query.shape
    num_kv_heads, block_size = key_cache.shape[1], key_cache.shape[3]
    columns = num_kv_heads * passes(num_heads // num_kv_heads, head_size, query.dtype)
    window = options.sliding_window or NO_WINDOW
    longest = min(block_tables.shape[1] * block_size, window + block_size)
    parts = _num_parts(columns * num_seqs, longest, query.device.index)
    part_output, part_state = partial_states(query, parts)
    slopes = options.alibi_slopes
    kernel = get_kernel(
        NAME,
        query.device.index,
        ELEMENT=element_name(query.dtype),
        HEAD_SIZE=head_size,
        BLOCK_SIZE=block_size,
        GROUP_SIZE=num_heads // num_kv_heads,
        NUM_WARPS=NUM_WARPS,
        SOFT_CAP=int(options.cap is not None),
        ALIBI=int(slopes is not None),
    )
    args = (
        output.data_ptr(),
        0 if lse is None else lse.data_ptr(),
        part_output.data_ptr(),
        part_state.data_ptr(),
        arrival_counters(query.device, columns * num_seqs).data_ptr() if parts > 1 else 0,
        query.data_ptr(),
        key_cache.data_ptr(),
        value_cache.data_ptr(),
        block_tables.data_ptr(),
        seq_lens.data_ptr(),
        0 if slopes is None else slopes.data_ptr(),
        i32(block_tables.stride(0)),
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


def passes(group_size: int, head_size: int, dtype: torch.dtype) -> int:
    """Thread blocks that share the query heads of one KV head: `PASSES` of the kernel."""
    rows = head_size * dtype.itemsize // 16
    max_heads = 1 if rows > 32 else 2 if rows > 16 else 4
    return -(-group_size // max_heads)


def _num_parts(thread_blocks: int, longest: int, device_index: int) -> int:
    """Into how many parts the longest sequence may go so that the GPU is filled."""
    wanted = THREAD_BLOCKS * _num_multiprocessors(device_index) // thread_blocks
    return max(1, min(wanted, -(-longest // (STEP_TOKENS * NUM_WARPS))))


@cache
def _num_multiprocessors(device_index: int) -> int:
    return torch.cuda.get_device_properties(device_index).multi_processor_count
