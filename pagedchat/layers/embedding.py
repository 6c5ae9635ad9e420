"""A table of rows that token ids or positions choose from."""

import torch
from torch import nn
from torch.nn import functional

from pagedchat.layers.weights import Places, empty_parameter


class Embedding(nn.Module):
    """Rows by index; the table has no values yet.

    Args:
        num_rows: indices that may be asked for, `offset` aside.
        width: of a row.
        offset: the row of index 0; those before it are never asked for.
    """

    def __init__(self, num_rows: int, width: int, *, offset: int = 0) -> None:
        super().__init__()
        self.offset = offset
        self.weight = empty_parameter(num_rows + offset, width)

    def forward(self, indices: torch.Tensor) -> torch.Tensor:
        """`[num_tokens]`, int64 -> `[num_tokens, width]`."""
        return functional.embedding(indices + self.offset if self.offset else indices, self.weight)

    def places(self, name: str) -> Places:
        """For a checkpoint that has this table as `name`."""
        return {f"{name}.weight": self.weight}
