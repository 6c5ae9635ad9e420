"""A copy of a weight in 8 bits that knows how far from it each column is: what `likely_columns` goes by. Knows no
model.
"""

from dataclasses import dataclass

import torch

from pagedchat.ops.cpu.packing import PackedWeight, empty_packed
from pagedchat.ops.quantized.quantize import ROWS_TOGETHER, quantize_rows
from pagedchat.ops.quantized.weight import QuantizedWeight

GROUP = 64
"""Elements of a row of the copy with one scale."""

_LONGER = 1.0001
"""A length that was summed up in float32 is not longer than that."""


@dataclass(frozen=True, slots=True, eq=False)
class BoundedCopy:
    """Of a weight `[out_features, in_features]`, whose rows are columns of what it is multiplied to."""

    packed: PackedWeight
    """In groups of `GROUP`."""
    lengths: torch.Tensor
    """float32 `[out_features]`: of the copy's rows, or a little more."""
    lost: torch.Tensor
    """The same of the difference to the weight's."""

    @property
    def nbytes(self) -> int:
        """Of all its tensors."""
        return self.packed.nbytes + self.lengths.nbytes + self.lost.nbytes


class CopyInMaking:
    """One that is made some rows at a time: whoever has a step to run meanwhile waits for a part of it only.

    Args:
        weight: float32 or bfloat16 `[out_features, in_features]`, in_features a multiple of `GROUP`.
        zero_of_8_bits: see `packing.packed_weight`.
    """

    def __init__(self, weight: torch.Tensor, zero_of_8_bits: int) -> None:
        num_rows, width = weight.shape
        self._weight, self._done = weight, 0
        packed = empty_packed(8, GROUP, num_rows, width, zero_of_8_bits, minimums=False)
        self._copy = BoundedCopy(packed, torch.empty(num_rows), torch.empty(num_rows))

    def go_on(self, elements: int) -> BoundedCopy | None:
        """Make about so many elements more; the copy, once all are there.

        Raises:
            ValueError: the weight has numbers that 8 bits with scales in float16 cannot stand for.
        """
        num_rows, width = self._weight.shape
        start = self._done
        self._done = min(num_rows, start + max(1, elements // (width * ROWS_TOGETHER)) * ROWS_TOGETHER)
        some = self._weight[start : self._done]
        quantize_rows(some, 8, GROUP, lambda at, few: self._take(start + at, few))
        return self._copy if self._done == num_rows else None

    def _take(self, start: int, few: QuantizedWeight) -> None:
        self._copy.packed.write(start, few)
        rows = slice(start, start + few.out_features)
        means = few.digits.view(few.out_features, -1, GROUP).float() * few.scales.float().unsqueeze(-1)
        means = means.view(few.out_features, -1)
        self._copy.lengths[rows] = means.norm(dim=1) * _LONGER
        self._copy.lost[rows] = means.sub_(self._weight[rows]).norm(dim=1) * _LONGER
