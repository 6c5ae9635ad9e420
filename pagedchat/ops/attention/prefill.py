"""Prefill: a chunk of queries per sequence against the cached tokens before it and the chunk itself, causally.

A varlen batch: the chunks follow one another, and each sequence has its own length, context and block table. Keys
and values, those of the chunk included, are read from the cache layout of PagedAttention (Kwon et al. 2023, arXiv
2309.06180) where they lie. Chunks of one token are decode; `decode_split` is made for a batch of those.

Three kernels, the first that can do it: `wgmma` (Hopper, chunks that fill its tiles), `mma` (tensor cores since
Turing), CUDA cores (any type). Without a GPU, plain torch.
"""

import torch

from pagedchat.ops.attention import prefill_mma, prefill_simt, prefill_wgmma
from pagedchat.ops.attention.options import AttentionOptions
from pagedchat.ops.attention.reference import attend_texts
from pagedchat.ops.common.checks import check_dtype, check_same_type, check_shape
from pagedchat.ops.common.launch import can_overlap, on_cuda, with_whole_rows

MIN_WGMMA_ROWS = 128
"""Query rows (heads of a group times tokens of the longest chunk) from which on `wgmma` is the faster one."""


def paged_prefill(
    query: torch.Tensor,
    key_cache: torch.Tensor,
    value_cache: torch.Tensor,
    block_tables: torch.Tensor,
    seq_lens: torch.Tensor,
    cu_seqlens_q: torch.Tensor,
    options: AttentionOptions,
    *,
    max_query_len: int,
    output: torch.Tensor | None = None,
    lse: torch.Tensor | None = None,
    overlap: bool = False,
) -> torch.Tensor:
    """Attend with the chunks of several sequences; the last of a sequence's queries is its last token.

    Args:
        query: `[num_tokens, num_heads, head_size]`, any token and head stride.
        key_cache: `[num_blocks, num_kv_heads, head_size / x, block_size, x]`, `x` elements are 16 bytes.
        value_cache: `[num_blocks, num_kv_heads, head_size, block_size]`.
        block_tables: `[num_seqs, max_blocks_per_seq]`, int32; read up to each sequence's last block.
        seq_lens: `[num_seqs]`, int32, the chunk's tokens included.
        cu_seqlens_q: `[num_seqs + 1]`, int32; rows `cu_seqlens_q[s]` to `cu_seqlens_q[s + 1] - 1` of `query` belong
            to sequence s. Rows past the last are left alone.
        options: scale, window, soft cap, ALiBi.
        max_query_len: no chunk has more tokens.
        output: like `query`, written; a new one by default.
        lse: `[num_tokens, num_heads]`, float32, gets the natural log-sum-exp of the scores if given.
        overlap: the launch may begin before the kernel before it has ended, which makes the query or the newest
            keys and values; lengths and block tables are read before that.

    Returns:
        `output`: `[num_tokens, num_heads, head_size]`; zeros where a query sees no key.

    Raises:
        ValueError: shapes or types that do not go together.
    """
    _check(query, key_cache, value_cache, block_tables, seq_lens, cu_seqlens_q, options, output, lse)
    target = torch.empty(query.shape, dtype=query.dtype, device=query.device) if output is None else output
    if not on_cuda(query, key_cache):
        query_lens = cu_seqlens_q.diff().tolist()
        attend_texts(query, key_cache, value_cache, block_tables, seq_lens, query_lens, options, target, lse)
    elif len(query) and len(seq_lens):
        readable, writable = with_whole_rows(query), with_whole_rows(target)
        launch = _choose(readable, key_cache, options, max_query_len)
        args = (readable, key_cache, value_cache, block_tables, seq_lens, cu_seqlens_q)
        overlap = overlap and can_overlap(query.device)
        launch(*args, options, max_query_len, writable, lse, overlap=overlap)
        if writable is not target:
            target.copy_(writable)
    return target


def _choose(
    query: torch.Tensor, key_cache: torch.Tensor, options: AttentionOptions, max_query_len: int
) -> prefill_mma.Launch:
    num_rows = max_query_len * query.shape[1] // key_cache.shape[1]
    if num_rows >= MIN_WGMMA_ROWS and prefill_wgmma.supported(query, key_cache, options):
        return prefill_wgmma.launch
    if prefill_mma.supported(query, key_cache, options):
        return prefill_mma.launch
    return prefill_simt.launch


def _check(
    query: torch.Tensor,
    key_cache: torch.Tensor,
    value_cache: torch.Tensor,
    block_tables: torch.Tensor,
    seq_lens: torch.Tensor,
    cu_seqlens_q: torch.Tensor,
    options: AttentionOptions,
    output: torch.Tensor | None,
    lse: torch.Tensor | None,
) -> None:
    num_blocks, num_kv_heads, chunks, block_size, row = key_cache.shape
    num_tokens, num_heads = query.shape[:2]
    check_shape("query", query, None, None, chunks * row)
    check_shape("value_cache", value_cache, num_blocks, num_kv_heads, chunks * row, block_size)
    check_shape("block_tables", block_tables, seq_lens.shape[0], None)
    check_shape("cu_seqlens_q", cu_seqlens_q, seq_lens.shape[0] + 1)
    for name, tensor in (("block_tables", block_tables), ("seq_lens", seq_lens), ("cu_seqlens_q", cu_seqlens_q)):
        check_dtype(name, tensor, torch.int32)
    check_same_type("query", query, key_cache)
    check_same_type("value_cache", value_cache, key_cache)
    if num_heads % num_kv_heads:
        raise ValueError(f"query has {num_heads} heads, expected a multiple of {num_kv_heads} KV heads")
    if output is not None:
        check_shape("output", output, *query.shape)
        check_same_type("output", output, query)
    if lse is not None:
        check_shape("lse", lse, num_tokens, num_heads)
        check_dtype("lse", lse, torch.float32)
    if options.alibi_slopes is not None:
        check_shape("alibi_slopes", options.alibi_slopes, num_heads)
        check_dtype("alibi_slopes", options.alibi_slopes, torch.float32)
