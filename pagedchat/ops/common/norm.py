"""The norm that some ops apply to their input before they multiply it."""

from dataclasses import dataclass
from typing import Literal

import torch
from torch.nn import functional

from pagedchat.ops.common.checks import check_same_type, check_shape


@dataclass(frozen=True, slots=True)
class Norm:
    """LayerNorm (Ba et al. 2016, arXiv 1607.06450) or RMSNorm (Zhang and Sennrich 2019, arXiv 1910.07467)."""

    kind: Literal["layer", "rms"]
    weight: torch.Tensor
    """`[width]`, of the type of the rows."""
    bias: torch.Tensor | None
    """`[width]`; None adds nothing, and there is none with "rms"."""
    eps: float

    @property
    def constant(self) -> int:
        """The `NORM` constant of the kernels."""
        return 1 if self.kind == "layer" else 2

    def apply(self, rows: torch.Tensor) -> torch.Tensor:
        """`[num_rows, width]` -> the same shape and type; worked out in float32 or better."""
        if self.kind == "layer":
            return functional.layer_norm(rows, (rows.shape[1],), self.weight, self.bias, self.eps)
        exact = rows if rows.dtype == torch.float64 else rows.float()
        scaled = exact * torch.rsqrt(exact.pow(2).mean(dim=-1, keepdim=True) + self.eps)
        return self.weight * scaled.to(rows.dtype)


def check_norm(norm: Norm, rows: torch.Tensor) -> None:
    """Refuse a norm that is not for these rows.

    Raises:
        ValueError: another width, type or device.
    """
    for name, tensor in (("norm.weight", norm.weight), ("norm.bias", norm.bias)):
        if tensor is not None:
            check_shape(name, tensor, rows.shape[1])
            check_same_type(name, tensor, rows)
