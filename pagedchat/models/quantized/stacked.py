"""A tensor of three dimensions in few bits: matrices one behind the other, as a file has the experts of a layer.
Knows no file and no model.

Each is made when it is asked for, so that however many there are, no two of them need be in memory.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch

from pagedchat.ops.quantized.weight import QuantizedWeight

Changing = Callable[[QuantizedWeight], QuantizedWeight]


@dataclass(frozen=True, slots=True, eq=False)
class Stacked:
    """`[num_matrices, rows, columns]`."""

    shape: torch.Size
    make: Callable[[int], QuantizedWeight]
    """The matrix of a number."""

    def __iter__(self) -> Iterator[QuantizedWeight]:
        return map(self.make, range(self.shape[0]))

    def changed(self, change: Changing, dim: int, length: int) -> "Stacked":
        """With something done to each matrix, which gives a dimension of the whole another length."""
        shape = [*self.shape]
        shape[dim] = length
        return Stacked(torch.Size(shape), lambda number: change(self.make(number)))
