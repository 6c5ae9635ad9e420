"""Keep attention scores within bounds without a hard edge (Gemma 2, arXiv 2408.00118)."""

import torch


def soft_cap(scores: torch.Tensor, cap: float | None) -> torch.Tensor:
    """`cap * tanh(scores / cap)`; the scores themselves without a cap. Any shape and type."""
    return scores if cap is None else torch.tanh(scores / cap) * cap
