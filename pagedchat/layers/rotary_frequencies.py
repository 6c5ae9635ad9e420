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

    def apply(self, frequencies: torch.Tensor, _theta: float) -> torch.Tensor:
        """Scaled frequencies."""
        turns = self.original_len * frequencies / (2 * math.pi)
        kept = (turns - self.low_freq_factor) / (self.high_freq_factor - self.low_freq_factor)
        kept = kept.clamp(0, 1)
        return (1 - kept) * frequencies / self.factor + kept * frequencies


@dataclass(frozen=True, slots=True)
class YarnScaling:
    """YaRN's (Peng et al. 2023, arXiv 2309.00071): as Llama 3.1's, with a ramp along the pairs' numbers."""

    factor: float
    fast_turns: float
    """A pair that turns so often in the context of the training is left alone."""
    slow_turns: float
    """One that turns no more often than this is slowed down by `factor`."""
    original_len: int
    whole: bool = True
    """The ramp begins and ends at whole numbers of pairs."""

    def apply(self, frequencies: torch.Tensor, theta: float) -> torch.Tensor:
        """Scaled frequencies."""
        turned = 2 * len(frequencies)
        begin, end = (self._pair(turns, turned, theta) for turns in (self.fast_turns, self.slow_turns))
        if self.whole:
            begin, end = math.floor(begin), math.ceil(end)
        begin, end = max(begin, 0), min(end, turned - 1)
        numbers = torch.arange(len(frequencies), dtype=torch.float32, device="cpu")
        slowed = ((numbers - begin) / (end - begin or 0.001)).clamp(0, 1)
        return slowed * frequencies / self.factor + (1 - slowed) * frequencies

    def _pair(self, turns: float, turned: int, theta: float) -> float:
        """Which pair turns so often, as a number between whole ones."""
        return turned * math.log(self.original_len / (turns * 2 * math.pi)) / (2 * math.log(theta))


@dataclass(frozen=True, slots=True)
class PairScaling:
    """Each pair is slowed down by a factor of its own (LongRoPE, Ding et al. 2024, arXiv 2402.13753)."""

    factors: tuple[float, ...]
    original_len: int
    """Context of the training, and of these factors: past it there are others."""

    def apply(self, frequencies: torch.Tensor, _theta: float) -> torch.Tensor:
        """Scaled frequencies."""
        return frequencies / torch.tensor(self.factors, dtype=torch.float32, device="cpu")


@dataclass(frozen=True, slots=True)
class RotaryConfig:
    """Which frequencies a model has."""

    theta: float
    """Base of the geometric series."""
    factor: float = 1.0
    """Linear scaling: positions count as if divided by it."""
    scaling: Llama3Scaling | YarnScaling | PairScaling | None = None
    share: float = 1.0
    """Part of a head's elements that are turned, the first ones."""
    scale: float = 1.0
    """What turned queries and keys are multiplied by."""
    exact: bool = False
    """Queries and keys are turned in float32 whatever their type."""

    def turned(self, head_dim: int) -> int:
        """Elements of a head that are turned."""
        return int(head_dim * self.share)

    def frequencies(self, head_dim: int) -> torch.Tensor:
        """`[turned / 2]`, float32, on the CPU: radians per position."""
        turned = self.turned(head_dim)
        exponents = torch.arange(0, turned, 2, dtype=torch.float32, device="cpu") / turned
        frequencies = 1.0 / self.theta**exponents / self.factor
        return self.scaling.apply(frequencies, self.theta) if self.scaling else frequencies
