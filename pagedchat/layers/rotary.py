"""Rotary position embedding (Su et al. 2021, arXiv 2104.09864): pairs of a head's elements are turned by angles
that grow with the position. Element i goes with element i + head_dim / 2.
"""

from dataclasses import dataclass

import torch
from torch import nn


@dataclass(frozen=True, slots=True)
class Rotation:
    """The angles of one forward pass, the same for all layers and heads."""

    cos: torch.Tensor
    """`[num_tokens, 1, head_dim / 2]`, of the model's type."""
    sin: torch.Tensor

    def apply(self, heads: torch.Tensor) -> torch.Tensor:
        """Turn queries or keys, `[num_tokens, num_heads, head_dim]`."""
        first, second = heads.chunk(2, dim=-1)
        turned = (first * self.cos - second * self.sin, second * self.cos + first * self.sin)
        return torch.cat(turned, dim=-1)


class RotaryEmbedding(nn.Module):
    """Positions -> `Rotation`. Has no weights.

    Args:
        frequencies: `[head_dim / 2]`, float32: radians per position of each pair.
    """

    frequencies: torch.Tensor

    def __init__(self, frequencies: torch.Tensor) -> None:
        super().__init__()
        self.register_buffer("frequencies", frequencies, persistent=False)

    def forward(self, positions: torch.Tensor, dtype: torch.dtype) -> Rotation:
        """Angles of tokens.

        Args:
            positions: `[num_tokens]`, int64.
            dtype: of the queries and keys; the angles themselves are float32.
        """
        angles = positions[:, None, None].float() * self.frequencies
        return Rotation(angles.cos().to(dtype), angles.sin().to(dtype))
