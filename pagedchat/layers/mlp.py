"""The feed-forward half of a layer, plain or gated."""

import torch

from pagedchat.layers.activation import ACTIVATIONS
from pagedchat.layers.arithmetic import Calculating
from pagedchat.layers.linear import Linear
from pagedchat.ops.products.activate import activate, has_kernel


class Mlp(Calculating):
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
        product: torch.Tensor = self.down(self.arithmetic.apply(self._activate, self.up(rows)))
        return product


class GatedMlp(Calculating):
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
        both: torch.Tensor = self.gate_up(rows)
        product: torch.Tensor = self.down(self._middle(both))
        return product

    def _middle(self, both: torch.Tensor) -> torch.Tensor:
        """Gates and values side by side -> what `down` multiplies."""
        if self.arithmetic.batch_invariant and self.activation == "silu" and has_kernel(both, paired=True):
            return activate(both, "silu", paired=True, overlap=True)  # a kernel of our own, each element by itself
        gate, up = both.chunk(2, dim=-1)
        return self.arithmetic.apply(self._activate, gate).mul_(up)
