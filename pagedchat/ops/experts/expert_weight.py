"""What the experts of a mixture multiply by: one tensor in which all are stacked, or each a weight of its own."""

from collections.abc import Sequence
from typing import NamedTuple, Protocol

import torch


class Tile(NamedTuple):
    """Rows that have an expert in common, one behind the other."""

    expert: int
    first: int
    num_rows: int


class SeparateWeights(Protocol):
    """Weights of their own for the experts, on a CPU. What they are made of, they know themselves."""

    @property
    def shape(self) -> torch.Size:
        """`[num_experts, out_features, in_features]`."""

    def products(self, rows: torch.Tensor, tiles: Sequence[Tile]) -> torch.Tensor:
        """Each row times the weight of its expert.

        Args:
            rows: `[num_rows, in_features]`, tile after tile.
            tiles: which expert has which of them; all rows, and no expert twice.

        Returns:
            `[num_rows, out_features]`, of the type of the rows.
        """


ExpertWeight = torch.Tensor | SeparateWeights
"""`[num_experts, out_features, in_features]`."""
