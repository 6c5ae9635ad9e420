"""Prefill: a chunk of queries per sequence against the cached tokens before it and the chunk itself, causally.

A first chunk needs nothing from the cache. A later one reads its context once per layer into a plain tensor; its
many queries pay for that copy. As with decode, what all layers share is planned once per step.
"""

from dataclasses import dataclass

import torch

from pagedchat.ops.attention.dense_attention import bias_of, dense_attention
from pagedchat.ops.cache.layout import context_slots
from pagedchat.ops.common.checks import check_same_type, check_shape

MAX_SCORES = 1 << 21
"""Scores of one head computed at a time; bounds the masks."""


@dataclass(frozen=True, slots=True)
class _Piece:
    """Consecutive queries of one sequence and the keys they look at."""

    queries: slice
    """Rows of the flattened batch."""
    keys: slice | torch.Tensor
    """Rows of the flattened batch, or slots of the cache: `[num_keys]`, int64."""
    mask: torch.Tensor | None
    """`[num_queries, num_keys]`; None: plainly causal."""


@dataclass(frozen=True, slots=True)
class TorchPrefillPlan:
    """What all layers of a step share; made by `plan_torch_prefill`."""

    num_tokens: int
    pieces: list[_Piece]


def plan_torch_prefill(
    block_tables: list[list[int]],
    query_lens: list[int],
    seq_lens: list[int],
    *,
    block_size: int,
    dtype: torch.dtype,
    device: torch.device,
    sliding_window: int | None = None,
) -> TorchPrefillPlan:
    """Work out what each chunk reads.

    Args:
        block_tables: for each sequence the ids of its blocks in order, covering at least its length.
        query_lens: tokens of each sequence's chunk; the chunks follow one another in the flattened batch.
        seq_lens: tokens of each sequence up to the end of its chunk.
        block_size: token slots in a block.
        dtype, device: of the queries and the cache.
        sliding_window: a query sees this many tokens, itself included; None sees all.
    """
    pieces: list[_Piece] = []
    row = 0
    for table, num_queries, length in zip(block_tables, query_lens, seq_lens, strict=True):
        start = length - num_queries
        if start == 0 and (sliding_window is None or length <= sliding_window):
            rows = slice(row, row + num_queries)
            pieces.append(_Piece(rows, rows, None))
        else:
            step = max(1, MAX_SCORES // length)
            for first in range(start, length, step):
                last = min(first + step, length)
                queries = slice(row + first - start, row + last - start)
                lowest = max(0, first + 1 - (sliding_window or length))
                slots = context_slots(table, lowest, last, block_size).to(device)
                mask = _mask(first, last, lowest, sliding_window, dtype, device)
                pieces.append(_Piece(queries, slots, mask))
        row += num_queries
    return TorchPrefillPlan(row, pieces)


def torch_prefill(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    key_cache: torch.Tensor,
    value_cache: torch.Tensor,
    plan: TorchPrefillPlan,
    *,
    scale: float,
    cap: float | None = None,
    alibi_slopes: torch.Tensor | None = None,
    sinks: torch.Tensor | None = None,
) -> torch.Tensor:
    """Attend with the chunks of several sequences.

    Args:
        query: `[num_tokens, num_heads, head_dim]`, any strides.
        key, value: `[num_tokens, num_kv_heads, head_dim]`, of the same tokens; they are in the cache as well.
        key_cache, value_cache: `[num_blocks, block_size, num_kv_heads, head_dim]`, contiguous.
        plan: from `plan_torch_prefill`.
        scale: factor of the scores before the softmax.
        cap: soft cap of the scores.
        alibi_slopes, sinks: `[num_heads]`, float32, as in `call.AttentionOptions`.

    Returns:
        `[num_tokens, num_heads, head_dim]`, of the query's type.

    Raises:
        ValueError: shapes or types that do not go together.
    """
    num_kv_heads, head_dim = key_cache.shape[2:]
    check_shape("query", query, plan.num_tokens, None, head_dim)
    check_shape("key", key, plan.num_tokens, num_kv_heads, head_dim)
    check_shape("value", value, plan.num_tokens, num_kv_heads, head_dim)
    check_shape("value_cache", value_cache, *key_cache.shape)
    check_same_type("query", query, key_cache)
    cached_keys, cached_values = (cache.view(-1, num_kv_heads, head_dim) for cache in (key_cache, value_cache))
    output = torch.empty(query.shape, dtype=query.dtype, device=query.device)
    for piece in plan.pieces:
        in_batch = isinstance(piece.keys, slice)
        piece_keys = (key if in_batch else cached_keys)[piece.keys]  # [num_keys, num_kv_heads, head_dim]
        piece_values = (value if in_batch else cached_values)[piece.keys]
        rows = (query[piece.queries], piece_keys, piece_values)
        output[piece.queries] = _attend(*rows, piece.mask, scale, cap, alibi_slopes, sinks)
    return output


def _attend(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    mask: torch.Tensor | None,
    scale: float,
    cap: float | None,
    alibi_slopes: torch.Tensor | None,
    sinks: torch.Tensor | None,
) -> torch.Tensor:
    is_plain = cap is None and alibi_slopes is None and sinks is None
    if mask is None and not is_plain:
        mask = _mask(0, len(query), 0, None, query.dtype, query.device)
    heads_first = (tensor.transpose(0, 1)[None] for tensor in (query, key, value))  # [1, heads, tokens, head_dim]
    bias, column = bias_of(alibi_slopes, len(query), len(key)), None if sinks is None else sinks.view(1, -1, 1, 1)
    attended = dense_attention(
        *heads_first, scale=scale, mask=mask, causal=mask is None, cap=cap, bias=bias, sinks=column
    )
    return attended[0].transpose(0, 1)


def _mask(
    first: int, last: int, lowest: int, sliding_window: int | None, dtype: torch.dtype, device: torch.device
) -> torch.Tensor:
    """`[last - first, last - lowest]`: 0 where the query at a position sees the key at another, else `-inf`."""
    queries = torch.arange(first, last, device=device)[:, None]
    keys = torch.arange(lowest, last, device=device)[None, :]
    hidden = keys > queries
    if sliding_window is not None:
        hidden |= keys <= queries - sliding_window
    return torch.zeros(hidden.shape, dtype=dtype, device=device).masked_fill_(hidden, float("-inf"))
