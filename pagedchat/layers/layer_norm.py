"""LayerNorm (Ba et al. 2016, arXiv 1607.06450): rows brought to mean 0 and variance 1."""

import torch
from torch import nn
from torch.nn import functional

from pagedchat.layers.weights import Places, empty_parameter

EPS = 1e-5


class LayerNorm(nn.Module):
    """`(x - mean) / deviation * weight + bias`.

    Args:
        width: of a row.
        affine: whether there are a weight and a bias.
    """

    def __init__(self, width: int, *, affine: bool) -> None:
        super().__init__()
        self.width = width
        self.weight = empty_parameter(width) if affine else None
        self.bias = empty_parameter(width) if affine else None

    def forward(self, rows: torch.Tensor) -> torch.Tensor:
        """`[..., width]` -> the same shape and type."""
        return functional.layer_norm(rows, (self.width,), self.weight, self.bias, EPS)

    def places(self, name: str) -> Places:
        """For a checkpoint that has this norm as `name`."""
        if self.weight is None or self.bias is None:
            return {}
        return {f"{name}.weight": self.weight, f"{name}.bias": self.bias}
