"""Norms of rows: LayerNorm (Ba et al. 2016, arXiv 1607.06450), RMSNorm (Zhang and Sennrich 2019, 1910.07467)."""

from dataclasses import dataclass
from typing import Literal

import torch
from torch.nn import functional

from pagedchat.layers.arithmetic import Calculating
from pagedchat.layers.weights import Places, empty_parameter
from pagedchat.ops.common import norm as ops
from pagedchat.ops.products.add_norm import add_norm, has_kernel


@dataclass(frozen=True, slots=True, kw_only=True)
class NormConfig:
    """Which norm, and what goes with it."""

    kind: Literal["rms", "layer"]
    """Divided by the root mean square; or brought to mean 0 and variance 1."""
    eps: float
    """Added to the mean square, or to the variance."""
    weight: bool = True
    bias: bool = False
    offset: float = 0.0
    """Added to the weight: of an RMS norm in float32, of a layer norm in its own type."""
    exact: bool = False
    """An RMS norm's rows are rounded behind the weight; else before it."""


class Norm(Calculating):
    """Rows or parts of them, normed over their last dimension. Worked out in float32.

    Args:
        config: which norm.
        shape: of the weight: `[width]`; or `[num_heads, width]`, where each head has a weight of its own.
    """

    def __init__(self, config: NormConfig, *shape: int) -> None:
        super().__init__()
        self.config = config
        self.width = shape[-1]
        self.weight = empty_parameter(*shape) if config.weight else None
        self.bias = empty_parameter(*shape) if config.bias else None

    def forward(self, rows: torch.Tensor) -> torch.Tensor:
        """`[..., width]` -> the same shape and type."""
        plain = self._by_kernel(rows)
        if plain is not None:  # a kernel of our own, with a thread block to each row
            by_row = rows.reshape(-1, self.width).contiguous()
            return add_norm(by_row, None, plain, overlap=self._can_overlap).view(rows.shape)
        return self.arithmetic.apply(self._layer if self.config.kind == "layer" else self._rms, rows)

    def of_sum(self, hidden: torch.Tensor, update: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """A residual stream that goes on, and the norm of it, `[num_rows, width]` each.

        Args:
            hidden: the stream so far; it may be changed.
            update: added to it.
        """
        plain = self._by_kernel(hidden)
        if plain is not None and hidden.is_contiguous() and update.is_contiguous():
            return hidden, add_norm(hidden, update, plain, overlap=self._can_overlap)
        hidden = hidden + update
        normed: torch.Tensor = self(hidden)
        return hidden, normed

    def of_ops(self) -> ops.Norm | None:
        """The same as kernels do it; None of a kind that they do not do."""
        config, weight, offset = self.config, self.weight, self.config.offset
        if weight is None:
            return None
        if config.kind == "layer":
            return ops.Norm("layer", weight + offset if offset else weight, self.bias, config.eps)
        if offset not in (0.0, 1.0):
            return None
        return ops.Norm("rms", weight, None, config.eps, exact=config.exact or offset != 0, one_more=offset != 0)

    @property
    def _can_overlap(self) -> bool:
        """Whether the weight that kernels are given, which they read at once, was there all the time."""
        return self.config.kind == "rms" or not self.config.offset

    def _by_kernel(self, rows: torch.Tensor) -> ops.Norm | None:
        """What the kernel of rows does with these, each by itself; None where torch does."""
        if not self.arithmetic.batch_invariant:  # asked several times a layer: this comes first
            return None
        weight = self.weight
        return self.of_ops() if weight is not None and weight.dim() == 1 and has_kernel(rows) else None

    def _layer(self, rows: torch.Tensor) -> torch.Tensor:
        size, eps, offset = (self.width,), self.config.eps, self.config.offset
        weight: torch.Tensor | None = self.weight
        bias = self.bias
        if weight is not None and offset:
            weight = weight + offset
        if weight is None or weight.dim() == 1:
            return functional.layer_norm(rows, size, weight, bias, eps)
        normed = functional.layer_norm(rows.float(), size, None, None, eps) * weight.float()
        return (normed if bias is None else normed + bias.float()).to(rows.dtype)

    def _rms(self, rows: torch.Tensor) -> torch.Tensor:
        size, eps, weight, offset = (self.width,), self.config.eps, self.weight, self.config.offset
        if weight is None or (self.config.exact and weight.dim() == 1 and not offset):
            return functional.rms_norm(rows, size, weight, eps)
        if self.config.exact or offset:
            normed = functional.rms_norm(rows.float(), size, None, eps)
            return (normed * (weight.float() + offset)).to(rows.dtype)
        return weight * functional.rms_norm(rows, size, None, eps)

    def places(self, name: str, first_head: int = 0) -> Places:
        """For a checkpoint that has this norm as `name`; with `{}` in it, one for each head from `first_head`."""
        places = {"weight": self.weight, "bias": self.bias}
        if "{}" not in name:
            return {f"{name}.{part}": place for part, place in places.items() if place is not None}
        return {
            f"{name.format(first_head + head)}.{part}": of_head
            for part, place in places.items()
            if place is not None
            for head, of_head in enumerate(place)
        }
