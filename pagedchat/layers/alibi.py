"""Attention with linear biases, ALiBi (Press et al. 2022, arXiv 2108.12409): instead of positions, scores fall with
the distance of a key, in each head by a slope of its own. Here are the slopes; who adds them is in `ops.attention`.
"""

from dataclasses import dataclass

import torch


@dataclass(frozen=True, slots=True, kw_only=True)
class Alibi:
    """Which slopes. Those of n heads, a power of two, are `2^(-max_bias * i / n)`, i from 1 to n."""

    max_bias: float = 8.0
    """Of the last of such heads the slope is two to the minus this."""
    scale: float = 1.0
    """What the slopes are multiplied by."""
    rounded: bool = False
    """They are rounded to bfloat16 before."""
    of_heads: int | None = None
    """Heads of the whole model, where not all are here."""
    first: int = 0
    """Which of those is the first one here."""

    def slopes(self, num_heads: int) -> torch.Tensor:
        """`[num_heads]`, float32, on the CPU."""
        return self._all_slopes(self.of_heads or num_heads)[self.first : self.first + num_heads]

    def _all_slopes(self, num_heads: int) -> torch.Tensor:
        """Of the whole model.

        Any other number of heads has the slopes of the power of two below it, and behind them those that the power
        above it has in between.
        """
        power = 1 << (num_heads - 1).bit_length()
        steps = torch.arange(1, power + 1, dtype=torch.float64, device="cpu")
        slopes = torch.exp2(-self.max_bias / power * steps)
        if power != num_heads:
            slopes = torch.cat((slopes[1::2], slopes[::2]))[:num_heads]
        if self.rounded:
            slopes = slopes.bfloat16().double()
        return (slopes * self.scale).float()
