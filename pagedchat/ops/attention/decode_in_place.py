"""Decode attention that reads keys and values from where they lie, by row number; copies nothing.

For CPUs, where reading the context is what a decode step costs. The rows are worked out once per step.
"""

from dataclasses import dataclass
from functools import cached_property

import torch
from torch.nn import functional

from pagedchat.ops.attention.dense_attention import soft_cap, softmax_beside

_WEIGHTED_SUM = 0
"""`mode="sum"` of an embedding bag, as the aten operators spell it."""


@dataclass(frozen=True)
class RowLayout:
    """Where the keys and values lie, as rows of the cache seen as `[num_slots * num_kv_heads, head_dim]`.

    A *bag* is one query head of one sequence. Keys are read token after token, all heads of a token together, as
    they lie in memory; values bag after bag, because they are summed so.
    """

    key_rows: torch.Tensor
    """`[num_rows]`, int64: sequence after sequence, in it token after token, in it head after head."""
    key_bags: torch.Tensor
    """`[num_rows]`, int64: the bag of each key row."""
    value_rows: torch.Tensor
    """`[num_rows]`, int64: bag after bag, in it token after token."""
    bag_starts: torch.Tensor
    """`[num_seqs * num_heads]`, int64: where each bag begins in `value_rows`."""
    context_lens: list[int]
    """Keys each sequence looks at."""

    @cached_property
    def distances(self) -> torch.Tensor:
        """`[num_rows / num_heads, 1]`, float32: how far each token is ahead of its sequence's last, in the order of
        the keys."""
        return torch.cat([torch.arange(1.0 - length, 1.0) for length in self.context_lens])[:, None]


def plan_rows(contexts: list[torch.Tensor], num_heads: int, num_kv_heads: int) -> RowLayout:
    """Rows of every bag; `contexts` are the slots that each sequence looks at, `[context_len]` each, int64."""
    heads = torch.arange(num_heads)
    kv_heads = heads // (num_heads // num_kv_heads)
    rows = [slots[:, None] * num_kv_heads + kv_heads for slots in contexts]  # [context_len, num_heads] each
    bags = [(heads + index * num_heads).repeat(len(slots)) for index, slots in enumerate(contexts)]
    lens = torch.tensor([len(slots) for slots in contexts]).repeat_interleave(num_heads)
    return RowLayout(
        key_rows=torch.cat([by_token.view(-1) for by_token in rows]),
        key_bags=torch.cat(bags),
        value_rows=torch.cat([by_token.t().reshape(-1) for by_token in rows]),
        bag_starts=lens.cumsum(0) - lens,
        context_lens=[len(slots) for slots in contexts],
    )


def read_through(
    query: torch.Tensor,
    key_cache: torch.Tensor,
    value_cache: torch.Tensor,
    layout: RowLayout,
    scale: float,
    cap: float | None,
    alibi_slopes: torch.Tensor | None,
    sinks: torch.Tensor | None,
) -> torch.Tensor:
    """Attention as two embedding-bag operators over the rows of the cache; arguments as in `torch_decode`.

    The weighted sum of values is an embedding bag. The dot products of keys with their query are what its backward
    computes for the weights: `output[i] = query[key_bags[i]] . keys[key_rows[i]]`.
    """
    num_seqs, num_heads, head_dim = query.shape
    bags = (query * scale).reshape(num_seqs * num_heads, head_dim)
    scores = torch.ops.aten._embedding_bag_per_sample_weights_backward(
        bags, key_cache.view(-1, head_dim), layout.key_rows, layout.bag_starts, layout.key_bags, _WEIGHTED_SUM
    )
    scores = soft_cap(scores, cap)
    if alibi_slopes is not None:
        scores = scores + (layout.distances * alibi_slopes.to(scores.dtype)).view(-1)
    weights = _softmax_of_bags(scores, layout.context_lens, num_heads, sinks)
    output = functional.embedding_bag(
        layout.value_rows, value_cache.view(-1, head_dim), layout.bag_starts, mode="sum", per_sample_weights=weights
    )
    return output.view(num_seqs, num_heads, head_dim)


def _softmax_of_bags(
    scores: torch.Tensor, context_lens: list[int], num_heads: int, sinks: torch.Tensor | None
) -> torch.Tensor:
    """`[num_rows]` in the order of the keys -> the same in the order of the values, summing to one in each bag."""
    column = None if sinks is None else sinks[:, None]
    if min(context_lens) == max(context_lens):
        by_token = scores.view(len(context_lens), context_lens[0], num_heads)
        of_bags = by_token.transpose(1, 2).contiguous()  # [num_seqs, num_heads, context_len]
        return softmax_beside(of_bags, column).reshape(-1)
    parts = torch.split(scores, [num_heads * length for length in context_lens])
    by_bag = [part.view(-1, num_heads).t().contiguous() for part in parts]
    return torch.cat([softmax_beside(part, column).reshape(-1) for part in by_bag])
