"""A table of rows that token ids or positions choose from."""

import torch
from torch import nn
from torch.nn import functional

from pagedchat.layers.weights import Places, empty_parameter
from pagedchat.ops.ranks.company import Ranks, own_rows


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


def over_ranks(table: Embedding, indices: torch.Tensor, ranks: Ranks) -> torch.Tensor:
    """Rows by index of a table of which each rank has as many rows, one rank's behind the other's.

    Args:
        table: the rows that are here.
        indices: `[num_tokens]`, int64, into the whole table.
        ranks: who has the others.

    Returns:
        `[num_tokens, width]`: a sum of zeros and of the one row that somebody has.
    """
    own, is_elsewhere = own_rows(indices, len(table.weight), ranks)
    rows: torch.Tensor = table(own)
    return ranks.sum(rows.masked_fill(is_elsewhere, 0))


_ROW_UNIT = 16
"""Each rank has a multiple of so many rows of the vocabulary, as kernels for few bits want it."""


def rows_of_rank(num_rows: int, num_ranks: int) -> int:
    """Rows that each rank has of a table; those of the last ones may be padding."""
    return -(-num_rows // (num_ranks * _ROW_UNIT)) * _ROW_UNIT
