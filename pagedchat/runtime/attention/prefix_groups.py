"""Which decodes of a step begin with the same blocks, and whether reading those once for all of them pays.

Block tables form a tree: chats under one system prompt part where their first turns begin, forks of one chat
further down. Every node is a possible group, and a sequence can be in one group only. A node's weight is what the
group saves: the blocks that all but one of its members need not read. The heaviest choice is found from the leaves
up. Knows no torch: block ids in, rows out.
"""

from collections import defaultdict
from itertools import chain
from typing import NamedTuple

MAX_DEPTH = 8
"""Levels of the tree that are looked at, so that the time is linear in the length of the block tables."""


class SharingRule(NamedTuple):
    """When sharing pays, in tokens of one layer's cache."""

    min_prefix: int
    """A shorter prefix is not worth a group."""
    min_saved: int
    """All groups of a step together must save reading this much to pay for the work of splitting and merging."""


class PrefixGroup(NamedTuple):
    """Adjacent rows of the batch whose block tables begin with the same blocks."""

    num_rows: int
    num_blocks: int
    """How many blocks they share, all full; 0 for rows that share nothing, in groups as large as the largest."""


class PrefixPlan(NamedTuple):
    """Decodes in an order in which the members of each group are adjacent."""

    order: list[int]
    groups: list[PrefixGroup]
    """In the order of the rows, covering all of them."""


class _Shared(NamedTuple):
    """A group before rows are given out."""

    members: list[int]
    num_blocks: int

    @property
    def saved(self) -> int:
        return (len(self.members) - 1) * self.num_blocks


def plan_sharing(
    block_tables: list[list[int]], seq_lens: list[int], block_size: int, rule: SharingRule
) -> PrefixPlan | None:
    """Group the decodes; None where that does not pay.

    Args:
        block_tables: block ids of each sequence, covering at least its length.
        seq_lens: tokens of each sequence, the query token included.
        block_size: token slots in a block.
        rule: when it pays.
    """
    # The query's own block is never shared, so every sequence keeps a part of its own.
    limits = [(length - 1) // block_size for length in seq_lens]
    shortest = max(1, -(-rule.min_prefix // block_size))
    found = [shared for shared in find_shared(block_tables, limits) if shared.num_blocks >= shortest]
    if not found or sum(shared.saved for shared in found) * block_size < rule.min_saved:
        return None
    grouped = list(chain.from_iterable(shared.members for shared in found))
    alone = sorted(set(range(len(block_tables))).difference(grouped))
    groups = [PrefixGroup(len(shared.members), shared.num_blocks) for shared in found]
    largest = max(groups).num_rows
    groups += [PrefixGroup(min(largest, len(alone) - i), 0) for i in range(0, len(alone), largest)]
    return PrefixPlan(grouped + alone, groups)


def find_shared(block_tables: list[list[int]], limits: list[int]) -> list[_Shared]:
    """The disjoint groups that save the most blocks.

    Args:
        block_tables: block ids of each sequence.
        limits: how many leading blocks of each sequence may be shared.
    """
    everybody = list(range(len(block_tables)))
    return [
        group
        for part in _parts(block_tables, limits, everybody, 0)
        for group in _heaviest(block_tables, limits, part)
    ]


def _heaviest(
    tables: list[list[int]], limits: list[int], members: list[int], depth: int = 0, level: int = 1
) -> list[_Shared]:
    """Members that agree on `depth` blocks: all as one group, or the best groups below, whichever saves more."""
    whole = _Shared(members, _common_length(tables, limits, members, depth))
    if level == MAX_DEPTH:
        return [whole]
    below = [
        group
        for part in _parts(tables, limits, members, whole.num_blocks)
        for group in _heaviest(tables, limits, part, whole.num_blocks, level + 1)
    ]
    return below if sum(group.saved for group in below) > whole.saved else [whole]


def _parts(tables: list[list[int]], limits: list[int], members: list[int], depth: int) -> list[list[int]]:
    """Members by their block at `depth`; those that have no other beside them drop out."""
    parts: defaultdict[int, list[int]] = defaultdict(list)
    for member in members:
        if limits[member] > depth:
            parts[tables[member][depth]].append(member)
    return [part for part in parts.values() if len(part) > 1]


def _common_length(tables: list[list[int]], limits: list[int], members: list[int], depth: int) -> int:
    """How many leading blocks the members share; they agree on the first `depth` already."""
    length = min([limits[member] for member in members])
    shared = tables[members[0]][depth:length]
    for member in members:
        other = tables[member][depth:length]
        if other != shared:
            agreement = next(i for i, (one, two) in enumerate(zip(shared, other, strict=True)) if one != two)
            length = depth + agreement
            shared = shared[:agreement]
    return length
