"""Attention over the paged cache in plain torch, text by text: what the CUDA ops do, on any device."""

import torch

from pagedchat.ops.attention.options import AttentionOptions
from pagedchat.ops.attention.soft_cap import soft_cap
from pagedchat.ops.cache.layout import to_token_major


def attend_texts(
    query: torch.Tensor,
    key_cache: torch.Tensor,
    value_cache: torch.Tensor,
    block_tables: torch.Tensor,
    seq_lens: torch.Tensor,
    query_lens: list[int],
    options: AttentionOptions,
    output: torch.Tensor,
    lse: torch.Tensor | None,
) -> None:
    """The last tokens of each sequence attend to all before them and themselves; float32 inside.

    Args:
        query: `[num_tokens, num_heads, head_size]`, the sequences after one another.
        key_cache: `[num_blocks, num_kv_heads, head_size / x, block_size, x]`.
        value_cache: `[num_blocks, num_kv_heads, head_size, block_size]`.
        block_tables: `[num_seqs, max_blocks_per_seq]`, int32.
        seq_lens: `[num_seqs]`, int32; a sequence of none gets zeros.
        query_lens: tokens of each sequence in `query`.
        options: scale, window, soft cap, ALiBi.
        output: like `query`, written.
        lse: `[num_tokens, num_heads]`, float32, written if given.
    """
    block_size, row = key_cache.shape[3], 0
    for table, seq_len, query_len in zip(block_tables.long(), seq_lens.tolist(), query_lens, strict=True):
        blocks = table[: -(-seq_len // block_size)]
        tokens = to_token_major(
            key_cache[blocks], value_cache[blocks]
        )  # [blocks, block_size, num_kv_heads, head_size]
        key, value = (cache.flatten(0, 1)[:seq_len].float() for cache in tokens)
        rows = slice(row, row + query_len)
        attended, log_sums = _attend(query[rows].float(), key, value, options)
        output[rows] = attended.to(output.dtype)
        if lse is not None:
            lse[rows] = log_sums
        row += query_len


def _attend(
    query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, options: AttentionOptions
) -> tuple[torch.Tensor, torch.Tensor]:
    """`[query_len, num_heads, head_size]` and `[query_len, num_heads]` of one sequence."""
    group = query.shape[1] // key.shape[1]
    key, value = (tokens.repeat_interleave(group, dim=1).transpose(0, 1) for tokens in (key, value))
    scores = torch.matmul(query.transpose(0, 1), key.transpose(1, 2))  # [num_heads, query_len, seq_len]
    scores = soft_cap(scores * options.scale, options.cap)
    positions = torch.arange(key.shape[1], device=key.device)
    distance = positions - (positions.shape[0] - len(query) + torch.arange(len(query), device=key.device))[:, None]
    if options.alibi_slopes is not None:
        scores = scores + options.alibi_slopes[:, None, None] * distance
    hidden = distance > 0
    if options.sliding_window is not None:
        hidden |= distance <= -options.sliding_window
    scores = scores.masked_fill(hidden, float("-inf"))
    attended = torch.matmul(torch.softmax(scores, dim=-1), value)  # [num_heads, query_len, head_size]
    return attended.transpose(0, 1), torch.logsumexp(scores, dim=-1).transpose(0, 1)
