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
    ) -> torch.Tensor:
        """Causal attention of every query over its sequence, its own key among them.

        Args:
            layer_idx: which layer's keys and values.
            query: `[num_tokens, num_heads, head_dim]`.
            key, value: `[num_tokens, num_kv_heads, head_dim]`, those of `write`.
            scale: factor of the scores.
            sliding_window: a query sees this many tokens, itself included; None sees all.
            cap: soft cap of the scores.

        Returns:
            `[num_tokens, num_heads, head_dim]`.
        """
        ...
