"""An RMS norm (Zhang and Sennrich 2019, arXiv 1910.07467) without a launch of its own, of rows that a product adds
to a residual stream, and the next one reads.

`norm(x)` is `x * weight / size(x)`, and a product is linear: the first product leaves rows that are weighed and the
squares of their elements, the second one divides its sums by what those come to.
"""

from dataclasses import dataclass
from struct import Struct
from typing import Self

import torch

from pagedchat.ops.common.norm import Norm

_AHEAD, _DUE = Struct("PPPf0P"), Struct("Piff0P")
"""`NormAhead` and `NormDue` of kernels/clusters/deferred_norm.cuh, padded as there."""


def can_be_deferred(norm: Norm | None) -> bool:
    """Whether it is of rows, by their size alone, with a weight of which the largest element is known."""
    return norm is not None and norm.kind == "rms" and norm.weight.dim() == 1 and norm.largest is not None


@dataclass(frozen=True, slots=True)
class DeferredRows:
    """Rows of a residual stream for the products that read their norm."""

    rows: torch.Tensor
    """`[num_rows, width]`, contiguous: times the weight of the norm, over its `unit`."""
    squares: torch.Tensor
    """`[num_sums, num_rows]`, contiguous, float32: of each row its sums of squares, of all columns together."""
    norm: Norm

    @classmethod
    def like(cls, stream: torch.Tensor, norm: Norm, num_sums: int) -> Self:
        """Room for those of a stream `[num_rows, width]`."""
        squares = stream.new_empty(num_sums, len(stream), dtype=torch.float32)
        return cls(torch.empty_like(stream), squares, norm)

    @property
    def to_write(self) -> bytes:
        """`NormAhead`."""
        pointers = self.rows.data_ptr(), self.norm.weight.data_ptr(), self.squares.data_ptr()
        return _AHEAD.pack(*pointers, 1 / self.norm.unit)

    @property
    def to_read(self) -> bytes:
        """`NormDue`."""
        return _DUE.pack(self.squares.data_ptr(), self.rows.shape[1], self.norm.eps, self.norm.unit)


NormedRows = torch.Tensor | DeferredRows
"""`[num_rows, width]`: what a product reads, normed or with a norm that is due."""


def rows_and_due(rows: NormedRows) -> tuple[torch.Tensor, DeferredRows | None]:
    """What is multiplied, and the norm that is due of it."""
    return (rows.rows, rows) if isinstance(rows, DeferredRows) else (rows, None)


def constants_of(ahead: DeferredRows | None, due: DeferredRows | None) -> dict[str, int]:
    """What the kernels are compiled with for either half."""
    constants = {} if ahead is None else {"NORM_AHEAD": ahead.norm.constant}
    return constants if due is None else {**constants, "NORM_DUE": len(due.squares)}


def arguments_of(ahead: DeferredRows | None, due: DeferredRows | None) -> tuple[bytes, bytes]:
    """What the kernels are told of either half; zeros of one that they have not."""
    to_write = bytes(_AHEAD.size) if ahead is None else ahead.to_write
    return to_write, bytes(_DUE.size) if due is None else due.to_read
