"""How fast each pair of a head turns, and how that is stretched for contexts longer than those of the training.

Always worked out on the CPU, so that a model turns the same way on any device.
"""

import math
from dataclasses import dataclass

import torch


@dataclass(frozen=True, slots=True)
class Llama3Scaling:
    """Llama 3.1's: slow pairs are slowed down by `factor`, quick ones left alone, those between in between."""

    factor: float
    low_freq_factor: float
    high_freq_factor: float
    original_len: int
    """Context of the training; a pair is slow or quick by how often it turns in that."""

    def apply(self, frequencies: torch.Tensor) -> torch.Tensor:
        """Scaled frequencies."""
        turns = self.original_len * frequencies / (2 * math.pi)
        kept = (turns - self.low_freq_factor) / (self.high_freq_factor - self.low_freq_factor)
        kept = kept.clamp(0, 1)
        return (1 - kept) * frequencies / self.factor + kept * frequencies


@dataclass(frozen=True, slots=True)
class RotaryConfig:
    """Which frequencies a model has."""

    theta: float
    """Base of the geometric series."""
    factor: float = 1.0
    """Linear scaling: positions count as if divided by it."""
    llama3: Llama3Scaling | None = None

    def frequencies(self, head_dim: int) -> torch.Tensor:
        """`[head_dim / 2]`, float32, on the CPU: radians per position."""
        exponents = torch.arange(0, head_dim, 2, dtype=torch.float32, device="cpu") / head_dim
        frequencies = 1.0 / self.theta**exponents / self.factor
        return self.llama3.apply(frequencies) if self.llama3 else frequencies
