"""How a model's layers do their sums: as fast as can be, or so that no row's numbers depend on the other rows.

Every layer does them by what it was given; knows no layer and no model.
"""

from collections.abc import Callable
from typing import Protocol

import torch
from torch import nn
from torch.nn import functional

from pagedchat.ops.products.invariant_linear import invariant_linear

RowFunction = Callable[[torch.Tensor], torch.Tensor]
"""Rows `[num_rows, ...]` -> as many, each of them out of one."""


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
    """Each row as if it were alone.

    On a GPU a function of torch does each element, or each row, by itself. On a CPU it does the last elements of a
    tensor in another way than the others, and what falls to another thread too: rows go one by one.
    """

    batch_invariant = True

    def multiply(self, rows: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None) -> torch.Tensor:
        """See `Arithmetic`."""
        return invariant_linear(rows, weight, bias, overlap=True)

    def apply(self, function: RowFunction, rows: torch.Tensor) -> torch.Tensor:
        """See `Arithmetic`."""
        if rows.is_cuda or len(rows) == 0:
            return function(rows.contiguous())  # of which there is one way, however many rows
        return torch.cat([function(row.contiguous()) for row in torch.split(rows, 1)])


class Calculating(nn.Module):
    """A layer that leaves its arithmetic to others."""

    arithmetic: Arithmetic = FastArithmetic()


def use_arithmetic(model: nn.Module, arithmetic: Arithmetic) -> None:
    """Have all layers of a model do their sums so, from now on."""
    for module in model.modules():
        if isinstance(module, Calculating):
            module.arithmetic = arithmetic
