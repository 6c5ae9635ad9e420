"""Attention without any cache: a whole text in one forward pass, each token attending to those before it.

What the paged attention is held against.
"""

import torch

from pagedchat.ops.attention.dense_attention import bias_of, dense_attention
from pagedchat.ops.cache.byte_cache import DTYPES, dequantised, quantised
from pagedchat.ops.cache.byte_kinds import CacheKind


class DenseAttention:
    """`PagedAttention` for one sequence that is there in whole: keeps nothing, needs no pages.

    Args:
        kind: keys and values are what a cache of one byte an element would give back; None: as they are.
    """

    def __init__(self, kind: CacheKind | None = None) -> None:
        self._bytes = None if kind is None else DTYPES[kind]

    def write(self, layer_idx: int, key: torch.Tensor, value: torch.Tensor) -> None:
        """Nothing is to be kept: `attend` is given the same K and V."""

    def attend(
        self,
        layer_idx: int,
        query: torch.Tensor,
        key: torch.Tensor,
        value: torch.Tensor,
        *,
        scale: float,
        sliding_window: int | None,
        cap: float | None,
        alibi_slopes: torch.Tensor | None = None,
        sinks: torch.Tensor | None = None,
    ) -> torch.Tensor:
        """See `PagedAttention`."""
        if self._bytes is not None:
            key, value = (dequantised(*quantised(rows, self._bytes), rows.dtype) for rows in (key, value))
        heads_first = [rows.transpose(0, 1)[None] for rows in (query, key, value)]
        mask = _causal_mask(query, sliding_window)
        bias, column = (
            bias_of(alibi_slopes, len(query), len(key)),
            None if sinks is None else sinks.view(1, -1, 1, 1),
        )
        attended = dense_attention(*heads_first, scale=scale, mask=mask, cap=cap, bias=bias, sinks=column)
        return attended[0].transpose(0, 1)


def _causal_mask(query: torch.Tensor, sliding_window: int | None) -> torch.Tensor:
    """`[num_tokens, num_tokens]`, to be added to the scores."""
    num_tokens = query.shape[0]
    seen = torch.ones(num_tokens, num_tokens, dtype=torch.bool, device=query.device).tril()
    if sliding_window is not None:
        seen &= seen.new_ones(seen.shape).triu(1 - sliding_window)
    return torch.zeros(seen.shape, dtype=query.dtype, device=query.device).masked_fill(~seen, float("-inf"))
