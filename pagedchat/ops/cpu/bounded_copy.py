"""A copy of a weight in 8 bits that knows how far from it each column is: what `likely_columns` goes by. Knows no
model.
"""

from dataclasses import dataclass

import torch

from pagedchat.ops.cpu.packing import PackedWeight, empty_packed
from pagedchat.ops.quantized.quantize import quantize_rows
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


def bounded_copy(weight: torch.Tensor, zero_of_8_bits: int) -> BoundedCopy:
    """Make one.

    Args:
        weight: float32 or bfloat16 `[out_features, in_features]`, in_features a multiple of `GROUP`.
        zero_of_8_bits: see `packing.packed_weight`.

    Raises:
        ValueError: it has numbers that 8 bits with scales in float16 cannot stand for.
    """
    num_rows, width = weight.shape
    packed = empty_packed(8, GROUP, num_rows, width, zero_of_8_bits, minimums=False)
    lengths, lost = torch.empty(num_rows), torch.empty(num_rows)

    def take(start: int, few: QuantizedWeight) -> None:
        packed.write(start, few)
        rows = slice(start, start + few.out_features)
        means = few.digits.view(few.out_features, -1, GROUP).float() * few.scales.float().unsqueeze(-1)
        means = means.view(few.out_features, -1)
        lengths[rows] = means.norm(dim=1) * _LONGER
        lost[rows] = means.sub_(weight[rows]).norm(dim=1) * _LONGER

    quantize_rows(weight, 8, GROUP, take)
    return BoundedCopy(packed, lengths, lost)
