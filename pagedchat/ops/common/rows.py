"""What torch does to rows, done so that none of them depends on the others. Knows no op."""

from collections.abc import Callable

import torch

RowFunction = Callable[[torch.Tensor], torch.Tensor]
"""Rows `[num_rows, ...]` -> as many, each of them out of one."""


def row_by_row(function: RowFunction, rows: torch.Tensor) -> torch.Tensor:
    """`function(rows)`, the function being more than sums and products of single elements.

    On a GPU a function of torch does each element, or each row, by itself. On a CPU it does the last elements of a
    tensor in another way than the others, and what falls to another thread too: rows go one by one.
    """
    if rows.is_cuda or len(rows) == 0:
        return function(rows.contiguous())  # of which there is one way, however many rows
    return torch.cat([function(row.contiguous()) for row in torch.split(rows, 1)])
