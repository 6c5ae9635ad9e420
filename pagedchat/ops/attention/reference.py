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
        scores = _scores(call.query[rows].float(), key, call.options)
        weights = torch.softmax(scores, dim=-1)[..., :seq_len]
        attended = torch.matmul(weights, _of_heads(value, weights.shape[0]))  # [num_heads, query_len, head_size]
        call.output[rows] = attended.transpose(0, 1).to(call.output.dtype)
        if call.lse is not None:
            call.lse[rows] = torch.logsumexp(scores, dim=-1).transpose(0, 1)
        row += query_len


def _scores(query: torch.Tensor, key: torch.Tensor, options: AttentionOptions) -> torch.Tensor:
    """`[num_heads, query_len, seq_len]` of one sequence, with those of the sinks behind if there are any."""
    key = _of_heads(key, query.shape[1])
    scores = torch.matmul(query.transpose(0, 1), key.transpose(1, 2))  # [num_heads, query_len, seq_len]
    scores = _ruled(soft_cap(scores * options.scale, options.cap), options)
    if options.sinks is None:
        return scores
    return torch.cat((scores, options.sinks[:, None, None].expand(*scores.shape[:2], 1)), dim=-1)


def _ruled(scores: torch.Tensor, options: AttentionOptions) -> torch.Tensor:
    """Those that a token sees, less what ALiBi takes for the distance."""
    _, query_len, seq_len = scores.shape
    window = options.sliding_window
    if query_len == 1 and window is None and options.alibi_slopes is None:
        return scores  # the last token sees all: most calls are for one
    positions = torch.arange(seq_len, device=scores.device)
    distance = positions - (seq_len - query_len + torch.arange(query_len, device=scores.device))[:, None]
    if options.alibi_slopes is not None:
        scores = scores + options.alibi_slopes[:, None, None] * distance
    hidden = distance > 0
    if window is not None:
        hidden |= distance <= -window
    return scores.masked_fill(hidden, float("-inf"))


def _of_heads(tokens: torch.Tensor, num_heads: int) -> torch.Tensor:
    """`[seq_len, num_kv_heads, head_size]` -> `[num_heads, seq_len, head_size]`."""
    group = num_heads // tokens.shape[1]
    return (tokens if group == 1 else tokens.repeat_interleave(group, dim=1)).transpose(0, 1)
