"""A matrix product, alone or several over the same input in one. Knows nothing of models."""

import torch
from torch import nn

from pagedchat.layers.arithmetic import Calculating
from pagedchat.layers.weights import Places, empty_parameter


class Linear(Calculating):
    """`rows @ weight.T + bias`; the weight has no values yet.

    Args:
        in_features: width of the input.
        out_features: width of the output.
        bias: whether there is one.
        weight: `[out_features, in_features]`, if another layer owns it.
    """

    def __init__(
        self, in_features: int, out_features: int, *, bias: bool, weight: nn.Parameter | None = None
    ) -> None:
        super().__init__()
        self.in_features, self.out_features = in_features, out_features
        self.weight = empty_parameter(out_features, in_features) if weight is None else weight
        self.bias = empty_parameter(out_features) if bias else None

    def forward(self, rows: torch.Tensor) -> torch.Tensor:
        """`[num_rows, in_features]` -> `[num_rows, out_features]`."""
        return self.arithmetic.multiply(rows, self.weight, self.bias)

    def places(self, name: str, *, transposed: bool = False) -> Places:
        """For a checkpoint that has this product as `name`."""
        return self.part_places({name: self.out_features}, transposed=transposed)

    def part_places(self, parts: dict[str, int], *, transposed: bool = False) -> Places:
        """For a checkpoint that has it as several products.

        Args:
            parts: name and output width of each, in the order of the output.
            transposed: the checkpoint's weights are `[in_features, out_features]`.
        """
        places: Places = {}
        start = 0
        for name, width in parts.items():
            weight = self.weight[start : start + width]
            places[f"{name}.weight"] = weight.T if transposed else weight
            if self.bias is not None:
                places[f"{name}.bias"] = self.bias[start : start + width]
            start += width
        return places
