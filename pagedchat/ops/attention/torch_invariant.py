"""Attention on a CPU in which a token's result follows from its own sequence alone, bit for bit.

Each query is taken by itself, with exactly the keys that it sees: whether it comes as a decode or in a chunk, and
what else is in the step, makes no difference to what torch is asked for. The context of a sequence is collected
once for all of its queries. As with the other ops in torch, what all layers share is planned once per step.
"""

from dataclasses import dataclass

import torch

from pagedchat.ops.attention.dense_attention import bias_of, dense_attention
from pagedchat.ops.cache.layout import context_slots
from pagedchat.ops.common.checks import check_same_type, check_shape


@dataclass(frozen=True, slots=True)
class _Chunk:
    """The queries of one sequence."""

    first_row: int
    """Of the flattened batch."""
    slots: torch.Tensor
    """`[num_keys]`, int64: of the tokens that any of them sees."""
    seen: list[tuple[int, int]]
    """For each query the first of these keys that it sees, and the one behind the last."""


@dataclass(frozen=True, slots=True)
class TorchInvariantPlan:
    """What all layers of a step share; made by `plan_torch_invariant`."""

    num_tokens: int
    chunks: list[_Chunk]


def plan_torch_invariant(
    block_tables: list[list[int]],
    query_lens: list[int],
    seq_lens: list[int],
    *,
    block_size: int,
    sliding_window: int | None = None,
) -> TorchInvariantPlan:
    """Work out what each query sees.

    Args:
        block_tables: for each sequence the ids of its blocks in order, covering at least its length.
        query_lens: tokens of each sequence's chunk, 1 for a decode; they follow one another in the batch.
        seq_lens: tokens of each sequence up to the end of its chunk.
        block_size: token slots in a block.
        sliding_window: a query sees this many tokens, itself included; None sees all.
    """
    chunks: list[_Chunk] = []
    row = 0
    for table, num_queries, length in zip(block_tables, query_lens, seq_lens, strict=True):
        positions = range(length - num_queries, length)
        first_seen = [max(0, position + 1 - (sliding_window or length)) for position in positions]
        lowest = first_seen[0]
        seen = [
            (first - lowest, position + 1 - lowest) for first, position in zip(first_seen, positions, strict=True)
        ]
        chunks.append(_Chunk(row, context_slots(table, lowest, length, block_size), seen))
        row += num_queries
    return TorchInvariantPlan(row, chunks)


def torch_invariant(
    query: torch.Tensor,
    key_cache: torch.Tensor,
    value_cache: torch.Tensor,
    plan: TorchInvariantPlan,
    *,
    scale: float,
    cap: float | None = None,
    alibi_slopes: torch.Tensor | None = None,
    sinks: torch.Tensor | None = None,
) -> torch.Tensor:
    """Attend with the chunks of several sequences.

    Args:
        query: `[num_tokens, num_heads, head_dim]`, any strides.
        key_cache, value_cache: `[num_blocks, block_size, num_kv_heads, head_dim]`, contiguous; hold the keys and
            values of these tokens too.
        plan: from `plan_torch_invariant`.
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
    check_shape("value_cache", value_cache, *key_cache.shape)
    check_same_type("query", query, key_cache)
    output = torch.empty(query.shape, dtype=query.dtype)
    for chunk in plan.chunks:
        # [num_keys, num_kv_heads, head_dim]: token after token, strides are the same for any number of keys
        keys, values = (cache.view(-1, num_kv_heads, head_dim)[chunk.slots] for cache in (key_cache, value_cache))
        for row, (first, end) in enumerate(chunk.seen, chunk.first_row):
            output[row] = dense_attention(
                query[row].contiguous()[None, :, None],
                keys[first:end].transpose(0, 1)[None],
                values[first:end].transpose(0, 1)[None],
                scale=scale,
                cap=cap,
                bias=bias_of(alibi_slopes, 1, end - first),
                sinks=None if sinks is None else sinks.view(1, -1, 1, 1),
            )[0, :, 0]
    return output
