"""Rows of a captured step that begin with the same blocks, which are then read once for all of them.

Who shares what is found out when a batch is told to the device, not at every step: sequences only grow, and what
they have in common stays.
"""

from itertools import accumulate
from typing import NamedTuple

from pagedchat.ops.attention.decode_grid import TILE_TOKENS
from pagedchat.runtime.attention.prefix_groups import PrefixPlan, SharingRule, plan_sharing
from pagedchat.runtime.graphs.decode.buckets import MAX_GROUPS


class SharedRows(NamedTuple):
    """Groups of adjacent rows, and the order that makes them adjacent."""

    order: list[int]
    """For each row which sequence of the batch."""
    lens: list[int]
    """Tokens that each row shares with the others of its group; 0 in no group."""
    group_starts: list[int]
    """First row of each group, and the row after the last one."""

    @property
    def rows(self) -> list[int]:
        """For each sequence of the batch which row."""
        rows = [0] * len(self.order)
        for row, index in enumerate(self.order):
            rows[index] = row
        return rows

    @property
    def num_groups(self) -> int:
        """Groups, one at least."""
        return len(self.group_starts) - 1

    @property
    def own_starts(self) -> list[int]:
        """For each sequence of the batch the token from which on it is read alone: the beginning of a tile."""
        return [self.lens[row] // TILE_TOKENS * TILE_TOKENS for row in self.rows]


def share_rows(
    block_tables: list[list[int]], seq_lens: list[int], block_size: int, rule: SharingRule | None
) -> SharedRows | None:
    """Group the rows of a batch; None where that does not pay.

    Args:
        block_tables: block ids of each sequence.
        seq_lens: their tokens, this step's included.
        block_size: token slots in a block.
        rule: when it pays; None: never.
    """
    if rule is None or len(seq_lens) < 2 or sum(seq_lens) <= rule.min_saved:
        return None
    plan = plan_sharing(block_tables, seq_lens, block_size, rule)
    return None if plan is None else _rows_of(plan, block_size)


def _rows_of(plan: PrefixPlan, block_size: int) -> SharedRows:
    """The groups that save the most first, everybody else behind them."""
    ends = list(accumulate(group.num_rows for group in plan.groups))
    members = [plan.order[end - group.num_rows : end] for group, end in zip(plan.groups, ends, strict=True)]
    by_gain = sorted(
        zip(plan.groups, members, strict=True), key=lambda pair: -(pair[0].num_rows - 1) * pair[0].num_blocks
    )
    shared = [pair for pair in by_gain[:MAX_GROUPS] if pair[0].num_blocks]
    order = [row for _, rows in by_gain for row in rows]
    lens = [group.num_blocks * block_size for group, rows in shared for _ in rows]
    starts = accumulate((len(rows) for _, rows in shared), initial=0)
    return SharedRows(order, lens + [0] * (len(order) - len(lens)), list(starts))
