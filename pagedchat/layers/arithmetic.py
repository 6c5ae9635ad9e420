"""How a model's layers do their sums: as fast as can be, or so that no row's numbers depend on the other rows.

Every layer does them by what it was given; knows no layer and no model.
"""

from typing import Protocol

import torch
from torch import nn
from torch.nn import functional

from pagedchat.ops.common.rows import RowFunction, row_by_row
from pagedchat.ops.products.invariant_linear import invariant_linear


class Arithmetic(Protocol):
    """What can be done in several ways."""

    batch_invariant: bool
    """Whether a row's numbers follow from the row alone, bit for bit."""

    def multiply(self, rows: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None) -> torch.Tensor:
        """`rows @ weight.T + bias`."""
        ...

    def apply(self, function: RowFunction, rows: torch.Tensor) -> torch.Tensor:
        """`function(rows)`, the function being more than sums and products of single elements."""
        ...


class FastArithmetic:
    """By torch, all rows at once."""

    batch_invariant = False

    def multiply(self, rows: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None) -> torch.Tensor:
        """See `Arithmetic`."""
        return functional.linear(rows, weight, bias)

    def apply(self, function: RowFunction, rows: torch.Tensor) -> torch.Tensor:
        """See `Arithmetic`."""
        return function(rows)


class InvariantArithmetic:
    """Each row as if it were alone."""

    batch_invariant = True

    def multiply(self, rows: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None) -> torch.Tensor:
        """See `Arithmetic`."""
        return invariant_linear(rows, weight, bias, overlap=True)

    def apply(self, function: RowFunction, rows: torch.Tensor) -> torch.Tensor:
        """See `Arithmetic`."""
        return row_by_row(function, rows)


class Calculating(nn.Module):
    """A layer that leaves its arithmetic to others."""

    arithmetic: Arithmetic = FastArithmetic()


def use_arithmetic(model: nn.Module, arithmetic: Arithmetic) -> None:
    """Have all layers of a model do their sums so, from now on."""
    for module in model.modules():
        if isinstance(module, Calculating):
            module.arithmetic = arithmetic
