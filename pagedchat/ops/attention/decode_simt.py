"""Decode on CUDA cores: one query token per sequence, one pass over its keys and values.

The op of PagedAttention (Kwon et al. 2023, arXiv 2309.06180) for any element type on any GPU, float32 inside. In
16-bit types, and with the heads in groups, `decode_split` is faster where there are tensor cores for it.
"""

import torch

from pagedchat.jit.driver import gpu
from pagedchat.jit.launch import f32, get_kernel, i32
from pagedchat.ops.attention.decode_checks import check_decode
from pagedchat.ops.attention.decode_workspace import arrival_counters, partial_states
from pagedchat.ops.attention.options import AttentionOptions
from pagedchat.ops.attention.reference import attend_texts
from pagedchat.ops.attention.simt_plan import NUM_WARPS, num_parts, passes
from pagedchat.ops.common.launch import address, element_name, on_cuda, stream_of, with_whole_rows

NAME = "decode_simt"


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
        _launch(with_whole_rows(query), key_cache, value_cache, block_tables, seq_lens, options, target, lse)
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
    columns = num_kv_heads * passes(num_heads // num_kv_heads, head_size, query.element_size())
    window = options.window
    longest = min(block_tables.shape[1] * block_size, window + block_size)
    parts = num_parts(columns * num_seqs, longest, gpu(query.device.index).num_multiprocessors)
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
        address(lse),
        part_output.data_ptr(),
        part_state.data_ptr(),
        arrival_counters(query.device, columns * num_seqs).data_ptr() if parts > 1 else 0,
        query.data_ptr(),
        key_cache.data_ptr(),
        value_cache.data_ptr(),
        block_tables.data_ptr(),
        seq_lens.data_ptr(),
        address(slopes),
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
