"""Attention over the paged cache in plain torch, text by text: what the CUDA ops do, on any device."""

import torch

from pagedchat.ops.attention.call import AttentionCall, AttentionOptions
from pagedchat.ops.attention.dense_attention import soft_cap
from pagedchat.ops.cache.layout import tokens_of


def attend_texts(call: AttentionCall, query_lens: list[int]) -> None:
    """The last tokens of each sequence attend to all before them and themselves; float32 inside.

    Args:
        call: the sequences' queries after one another; a sequence of no tokens gets zeros.
        query_lens: tokens of each sequence in the query.
    """
    block_size, row = call.key_cache.shape[3], 0
    lens = zip(call.block_tables.long(), call.seq_lens.tolist(), query_lens, strict=True)
    for table, seq_len, query_len in lens:
        blocks = table[: -(-seq_len // block_size)]
        tokens = tokens_of(call.key_cache, call.value_cache, blocks, torch.float32)
        key, value = (cache.flatten(0, 1)[:seq_len] for cache in tokens)  # [seq_len, num_kv_heads, head_size]
        rows = slice(row, row + query_len)
        attended, log_sums = _attend(call.query[rows].float(), key, value, call.options)
        call.output[rows] = attended.to(call.output.dtype)
        if call.lse is not None:
            call.lse[rows] = log_sums
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
    if options.sinks is not None:
        scores = torch.cat((scores, options.sinks[:, None, None].expand(*scores.shape[:2], 1)), dim=-1)
    weights = torch.softmax(scores, dim=-1)[..., : key.shape[1]]
    attended = torch.matmul(weights, value)  # [num_heads, query_len, head_size]
    return attended.transpose(0, 1), torch.logsumexp(scores, dim=-1).transpose(0, 1)
