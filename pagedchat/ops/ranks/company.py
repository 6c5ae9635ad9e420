"""Processes that have a part of a model each, the ranks, and what its layers ask of the others. Knows no transport.

As in Megatron-LM (Shoeybi et al. 2019, arXiv 1909.08053): of two products behind each other the first is cut by
columns, so that nobody needs what another has, and the second by rows, whose results are parts of a sum.
"""

from collections.abc import Callable
from typing import Protocol

import torch

from pagedchat.ops.common.norm import Norm
from pagedchat.ops.products.add_norm import Update, add_norm


class Ranks(Protocol):
    """All that have a part of one model. Every one of them calls the same, in the same order."""

    rank: int
    """Which one this is, from 0."""
    size: int
    """How many there are."""

    def sum(self, rows: torch.Tensor) -> torch.Tensor:
        """The sum of what all have, the same bits for everybody; `rows`, contiguous, may be written."""
        ...

    def add_norm(self, hidden: torch.Tensor, update: Update, norm: Norm | None) -> torch.Tensor:
        """See `ops.products.add_norm`, of the sum of all updates."""
        ...

    def side_by_side(self, columns: torch.Tensor) -> torch.Tensor:
        """What all have, one beside the other: `[num_rows, width]` -> `[num_rows, size * width]`."""
        ...


class Company(Ranks, Protocol):
    """See `Ranks`; and what loading a model asks of them."""

    @property
    def device(self) -> torch.device:
        """Of this rank."""
        ...

    def least(self, numbers: list[int]) -> list[int]:
        """Of each number the least that any rank has."""
        ...


Agree = Callable[[bool], bool]
"""Whether something is so on all ranks, of which each says whether it is so on this one."""


def nobody_else(here: bool) -> bool:
    """See `Agree`, of one rank."""
    return here


def agree_of(company: Company | None) -> Agree:
    """See `Agree`, of these; None: there is one alone. All of them ask at the same time."""
    if company is None:
        return nobody_else
    return lambda here: company.least([int(here)]) == [1]


class Alone:
    """There is nobody else."""

    rank, size = 0, 1

    def sum(self, rows: torch.Tensor) -> torch.Tensor:
        """See `Ranks`."""
        return rows

    def add_norm(self, hidden: torch.Tensor, update: Update, norm: Norm | None) -> torch.Tensor:
        """See `Ranks`."""
        return add_norm(hidden, update, norm, overlap=True)

    def side_by_side(self, columns: torch.Tensor) -> torch.Tensor:
        """See `Ranks`."""
        return columns


ALONE = Alone()


def own_rows(indices: torch.Tensor, height: int, ranks: Ranks) -> tuple[torch.Tensor, torch.Tensor]:
    """Of indices into a table of which each rank has `height` rows: where they are here, and which are elsewhere.

    Args:
        indices: `[num_tokens]`, of integers.
        height: of each rank's part.
        ranks: of the table.

    Returns:
        Rows of this rank's part, any where they are elsewhere; and `[num_tokens, 1]`, bool.
    """
    own = indices - ranks.rank * height
    return own.clamp(0, height - 1), ((own < 0) | (own >= height)).unsqueeze(-1)
