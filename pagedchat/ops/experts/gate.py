"""What is between the two products of an expert, by torch; kernels have the same in kernels/experts/gate.cuh."""

from dataclasses import dataclass

import torch
from torch.nn import functional


@dataclass(frozen=True, slots=True)
class Gate:
    """How the gate and the value of an expert become one number: `silu(gate) * value`."""

    limit: float | None = None
    """If there is one, gates are no larger and values no further from zero, and then they become
    `gate * sigmoid(sharpness * gate) * (value + 1)`, as gpt-oss has it."""
    sharpness: float = 1.0

    def __call__(self, product: torch.Tensor) -> torch.Tensor:
        """`[num_pairs, 2 * width]`, gates first -> `[num_pairs, width]`."""
        gate, value = product.chunk(2, dim=-1)
        if self.limit is None:
            return functional.silu(gate) * value
        gate, value = gate.clamp(max=self.limit), value.clamp(-self.limit, self.limit)
        return gate * torch.sigmoid(gate * self.sharpness) * (value + 1)


SILU = Gate()
"""What most mixtures have."""
