"""The feed-forward half of a layer, plain or gated."""

import torch
from torch import nn

from pagedchat.layers.activation import ACTIVATIONS
from pagedchat.layers.linear import Linear


class Mlp(nn.Module):
    """`down(activation(up(x)))`.

    Args:
        up, down: into the wide middle and out of it.
        activation: a name in `ACTIVATIONS`.
    """

    def __init__(self, up: Linear, down: Linear, activation: str) -> None:
        super().__init__()
        self.up, self.down = up, down
        self.activation = activation
        self._activate = ACTIVATIONS[activation]

    def forward(self, rows: torch.Tensor) -> torch.Tensor:
        """`[num_tokens, hidden_size]` -> the same shape."""
        product: torch.Tensor = self.down(self._activate(self.up(rows)))
        return product


class GatedMlp(nn.Module):
    """`down(activation(gate(x)) * up(x))` (Shazeer 2020, arXiv 2002.05202).

    Args:
        gate_up: gate and up side by side, as one product.
        down: out of the wide middle.
        activation: a name in `ACTIVATIONS`.
    """

    def __init__(self, gate_up: Linear, down: Linear, activation: str) -> None:
        super().__init__()
        self.gate_up, self.down = gate_up, down
        self.activation = activation
        self._activate = ACTIVATIONS[activation]

    def forward(self, rows: torch.Tensor) -> torch.Tensor:
        """`[num_tokens, hidden_size]` -> the same shape."""
        gate, up = self.gate_up(rows).chunk(2, dim=-1)
        product: torch.Tensor = self.down(self._activate(gate).mul_(up))
        return product
