"""What an attention layer asks of whoever keeps the keys and values. Knows no cache and no batch."""

from typing import Protocol

import torch


class PagedAttention(Protocol):
    """Told beforehand which sequences the rows of this forward pass belong to."""

    def write(self, layer_idx: int, key: torch.Tensor, value: torch.Tensor) -> None:
        """Keep the new tokens' K and V, `[num_tokens, num_kv_heads, head_dim]`."""
        ...

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
        """Causal attention of every query over its sequence, its own key among them.

        Args:
            layer_idx: which layer's keys and values.
            query: `[num_tokens, num_heads, head_dim]`.
            key, value: `[num_tokens, num_kv_heads, head_dim]`, those of `write`.
            scale: factor of the scores.
            sliding_window: a query sees this many tokens, itself included; None sees all.
            cap: soft cap of the scores.
            alibi_slopes: `[num_heads]`, float32: scores fall by this much for each token of distance (ALiBi).
            sinks: `[num_heads]`, float32: a score of each head that has no key and no value.

        Returns:
            `[num_tokens, num_heads, head_dim]`.
        """
        ...
