"""Decode attention that reads keys and values from where they lie, by row number; copies nothing.

For CPUs, where reading the context is what a decode step costs. The rows are worked out once per step.
"""

from dataclasses import dataclass

import torch
from torch.nn import functional

from pagedchat.ops.soft_cap import soft_cap

_WEIGHTED_SUM = 0
"""`mode="sum"` of an embedding bag, as the aten operators spell it."""


@dataclass(frozen=True, slots=True)
class RowLayout:
    """Where the keys and values lie, for reading in place.

    A *bag* is one query head of one sequence; its rows are those of the cache seen as
    `[num_slots * num_kv_heads, head_dim]`.
    """

    rows: torch.Tensor
    """`[num_rows]`, int64: bag after bag, token after token."""
    bag_starts: torch.Tensor
    """`[num_seqs * num_heads]`, int64."""
    row_bags: torch.Tensor
    """`[num_rows]`, int64: the bag of each row."""
    context_lens: list[int]
    """Keys each sequence looks at."""


def plan_rows(contexts: list[torch.Tensor], num_heads: int, num_kv_heads: int) -> RowLayout:
    """Rows of every bag; `contexts` are the slots that each sequence looks at, `[context_len]` each, int64."""
    kv_heads = torch.arange(num_heads)[:, None] // (num_heads // num_kv_heads)
    rows = [(slots * num_kv_heads + kv_heads).view(-1) for slots in contexts]  # [num_heads * context_len] each
    lens = torch.tensor([len(slots) for slots in contexts]).repeat_interleave(num_heads)
    return RowLayout(
        rows=torch.cat(rows),
        bag_starts=lens.cumsum(0) - lens,
        row_bags=torch.arange(len(lens)).repeat_interleave(lens),
        context_lens=[len(slots) for slots in contexts],
    )


def read_through(
    query: torch.Tensor,
    key_cache: torch.Tensor,
    value_cache: torch.Tensor,
    layout: RowLayout,
    scale: float,
    cap: float | None,
) -> torch.Tensor:
    """Attention as two embedding-bag operators over the rows of the cache.

    The weighted sum of values is an embedding bag. The dot products of keys with their query are what its backward
    computes for the weights: `output[i] = query[row_bags[i]] . keys[rows[i]]`.
    """
    num_seqs, num_heads, head_dim = query.shape
    bags = (query * scale).reshape(num_seqs * num_heads, head_dim)
    scores = torch.ops.aten._embedding_bag_per_sample_weights_backward(
        bags, key_cache.view(-1, head_dim), layout.rows, layout.bag_starts, layout.row_bags, _WEIGHTED_SUM
    )
    weights = _softmax_of_bags(soft_cap(scores, cap), layout.context_lens, num_heads)
    output = functional.embedding_bag(
        layout.rows, value_cache.view(-1, head_dim), layout.bag_starts, mode="sum", per_sample_weights=weights
    )
    return output.view(num_seqs, num_heads, head_dim)


def _softmax_of_bags(scores: torch.Tensor, context_lens: list[int], num_heads: int) -> torch.Tensor:
    """`[num_rows]` -> the same, summing to one in each bag."""
    if min(context_lens) == max(context_lens):
        return torch.softmax(scores.view(-1, context_lens[0]), dim=-1).view(-1)
    parts = torch.split(scores, [num_heads * length for length in context_lens])
    return torch.cat([torch.softmax(part.view(num_heads, -1), dim=-1).view(-1) for part in parts])
