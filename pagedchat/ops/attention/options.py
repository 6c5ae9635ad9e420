"""What the attention ops do to the scores besides the dot product."""

from dataclasses import dataclass

import torch

NO_WINDOW = 2**31 - 1
"""As kernels are told that a query sees everything before it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AttentionOptions:
    """`softmax(mask(soft_cap(scale * q.k) + slope * (key_position - query_position)))`."""

    scale: float
    """Factor of the dot products."""
    sliding_window: int | None = None
    """A query sees this many tokens, itself included; None sees all."""
    cap: float | None = None
    """Soft cap of the scores (Gemma 2, arXiv 2408.00118)."""
    alibi_slopes: torch.Tensor | None = None
    """`[num_heads]`, float32, on the query's device (ALiBi, Press et al. 2022, arXiv 2108.12409)."""

    @property
    def window(self) -> int:
        """Tokens that a query sees, `NO_WINDOW` if all."""
        return self.sliding_window or NO_WINDOW
