"""The weights of all experts in one form of few bits, one below the other: what a kernel takes on a GPU."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from pagedchat.ops.experts.expert_weight import Tile
from pagedchat.ops.quantized.linear import dequantized_linear
from pagedchat.ops.quantized.weight import QuantizedWeight
from pagedchat.ops.quantized.weight_form import WeightForm


@dataclass(frozen=True, slots=True, eq=False)
class StackedWeight:
    """See `SeparateWeights`.

    Raises:
        ValueError: the rows are no equal number for each expert.
    """

    num_experts: int
    rows_of_all: QuantizedWeight
    """`[num_experts * out_features, in_features]`."""

    def __post_init__(self) -> None:
        if self.num_experts < 1 or len(self.rows_of_all) % self.num_experts:
            raise ValueError(f"{len(self.rows_of_all)} rows do not share out among {self.num_experts} experts")

    @property
    def shape(self) -> torch.Size:
        """`[num_experts, out_features, in_features]`."""
        return torch.Size(
            (self.num_experts, len(self.rows_of_all) // self.num_experts, self.rows_of_all.in_features)
        )

    @property
    def form(self) -> WeightForm:
        """What kernels go by."""
        return self.rows_of_all.form

    def of(self, expert: int) -> QuantizedWeight:
        """One of them, a view."""
        num_rows = self.shape[1]
        return self.rows_of_all.rows(slice(expert * num_rows, (expert + 1) * num_rows))

    def products(self, rows: torch.Tensor, tiles: Sequence[Tile]) -> torch.Tensor:
        """See `SeparateWeights`; by torch."""
        output = rows.new_empty(len(rows), self.shape[1])
        for expert, first, num_rows in tiles:
            its_rows = slice(first, first + num_rows)
            output[its_rows] = dequantized_linear(rows[its_rows], self.of(expert))
        return output


@dataclass(frozen=True, slots=True, eq=False)
class ByTorch:
    """The same by torch, wherever it is: what its kernels are held against. See `SeparateWeights`."""

    weight: StackedWeight

    @property
    def shape(self) -> torch.Size:
        """`[num_experts, out_features, in_features]`."""
        return self.weight.shape

    def products(self, rows: torch.Tensor, tiles: Sequence[Tile]) -> torch.Tensor:
        """See `SeparateWeights`."""
        return self.weight.products(rows, tiles)
