"""Rotary position embedding (Su et al. 2021, arXiv 2104.09864): pairs of a head's elements are turned by angles
that grow with the position. Of the elements that are turned, the first ones, element i goes with the one half of
them further on.
"""

from dataclasses import dataclass

import torch

from pagedchat.layers.arithmetic import Calculating
from pagedchat.layers.rotary_frequencies import RotaryConfig


@dataclass(frozen=True, slots=True)
class Rotation:
    """The angles of one forward pass, the same for all heads, and for all layers that turn alike."""

    cos: torch.Tensor
    """`[num_tokens, 1, turned / 2]`, of the model's type or float32."""
    sin: torch.Tensor
    turns: torch.Tensor | None = None
    """`[num_tokens, turned / 2, 2]`, float32: both, where one kernel norms, turns and writes heads."""

    def apply(self, heads: torch.Tensor) -> torch.Tensor:
        """Turn queries or keys, `[num_tokens, num_heads, head_dim]`."""
        pairs = self.cos.shape[-1]
        first, second, rest = torch.split(heads, [pairs, pairs, heads.shape[-1] - 2 * pairs], dim=-1)
        turned = (first * self.cos - second * self.sin, second * self.cos + first * self.sin, rest)
        return torch.cat(turned, dim=-1).to(heads.dtype)


class RotaryEmbedding(Calculating):
    """Positions -> `Rotation`. Has no weights.

    Args:
        config: how fast, and how much of a head.
        head_dim: elements of a head.
    """

    frequencies: torch.Tensor

    def __init__(self, config: RotaryConfig, head_dim: int) -> None:
        super().__init__()
        self.config = config
        self.register_buffer("frequencies", config.frequencies(head_dim), persistent=False)

    def forward(self, positions: torch.Tensor, dtype: torch.dtype) -> Rotation:
        """Angles of tokens.

        Args:
            positions: `[num_tokens]`, int64.
            dtype: of the queries and keys; the angles themselves are float32.
        """
        cos, sin = self.turns(positions)
        kept = torch.float32 if self.config.exact else dtype
        turns = torch.stack((cos, sin), dim=-1) if self.arithmetic.batch_invariant else None
        return Rotation(cos[:, None].to(kept), sin[:, None].to(kept), turns)

    def turns(self, positions: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Cosines and sines of tokens' angles, as queries and keys are multiplied by them.

        Args:
            positions: `[num_tokens]`.

        Returns:
            `[num_tokens, turned / 2]`, float32, twice.
        """
        angles = positions[:, None].float() * self.frequencies
        cos, sin = self.arithmetic.apply(torch.cos, angles), self.arithmetic.apply(torch.sin, angles)
        return cos * self.config.scale, sin * self.config.scale
