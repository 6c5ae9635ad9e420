"""RMSNorm (Zhang and Sennrich 2019, arXiv 1910.07467): rows divided by their root mean square."""

import torch
from torch import nn

from pagedchat.layers.weights import Places, empty_parameter


class RMSNorm(nn.Module):
    """`x / rms(x) * weight`, worked out in float32 and rounded before the weight, as the models were trained.

    Args:
        width: of a row.
        eps: added to the mean square.
    """

    def __init__(self, width: int, eps: float) -> None:
        super().__init__()
        self.eps = eps
        self.weight = empty_parameter(width)

    def forward(self, rows: torch.Tensor) -> torch.Tensor:
        """`[..., width]` -> the same shape and type."""
        exact = rows.float()
        mean_square = exact.pow(2).mean(dim=-1, keepdim=True)
        return self.weight * (exact * torch.rsqrt(mean_square + self.eps)).to(rows.dtype)

    def places(self, name: str) -> Places:
        """For a checkpoint that has this norm as `name`."""
        return {f"{name}.weight": self.weight}
