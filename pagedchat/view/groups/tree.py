"""The block tables of some sequences as one tree: a node is a run of blocks that the same ones of them hold.

Pure: it knows tables, no mirror. Sequences that were forked from one another have the same blocks at the beginning,
and each its own from where they part.
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple


class GroupNode(NamedTuple):
    """One run of blocks, or the end of a sequence that has none of its own."""

    depth: int
    is_last: bool
    """Whether no sibling comes after it."""
    rails: tuple[bool, ...]
    """For each ancestor below the root, first to last: whether a sibling of it comes further down."""
    first: int
    """Place of its first block in the tables."""
    blocks: tuple[int, ...]
    members: tuple[int, ...]
    """The sequences that have these blocks there."""


def group_tree(tables: Mapping[int, Sequence[int]]) -> list[GroupNode]:
    """Nodes from top to bottom as they are drawn; siblings in the order of the tables.

    Args:
        tables: sequence -> its blocks.
    """
    nodes: list[GroupNode] = []
    waiting = [_Part(tuple(part), 0, 0, is_last=True, rails=()) for part in [tables] if part]
    while waiting:
        part = waiting.pop()
        end = part.first + _common(part, tables)
        blocks = tuple(tables[part.members[0]][part.first : end])
        nodes.append(GroupNode(part.depth, part.is_last, part.rails, part.first, blocks, part.members))
        if len(part.members) == 1:
            continue
        rails = (*part.rails, not part.is_last) if part.depth else ()
        below = _parted(part, end, tables)
        parts = [_Part(members, end, part.depth + 1, members is below[-1], rails) for members in below]
        waiting += reversed(parts)
    return nodes


class _Part(NamedTuple):
    """Sequences with the same blocks up to a place."""

    members: tuple[int, ...]
    first: int
    depth: int
    is_last: bool
    rails: tuple[bool, ...]


def _common(part: _Part, tables: Mapping[int, Sequence[int]]) -> int:
    """How many blocks all of them have in common from there on."""
    levels = zip(*(tables[seq_id][part.first :] for seq_id in part.members), strict=False)
    return next(
        (index for index, level in enumerate(levels) if len(set(level)) > 1),
        min(len(tables[seq_id]) for seq_id in part.members) - part.first,
    )


def _parted(part: _Part, place: int, tables: Mapping[int, Sequence[int]]) -> list[tuple[int, ...]]:
    """By the block that they have at a place; one that has none is by itself."""
    found: dict[object, list[int]] = {}
    for seq_id in part.members:
        table = tables[seq_id]
        found.setdefault(table[place] if place < len(table) else ("end", seq_id), []).append(seq_id)
    return [tuple(members) for members in found.values()]
