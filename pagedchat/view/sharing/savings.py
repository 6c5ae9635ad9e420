"""What chats have in common, counted: blocks that any two of them share, what that saves, what a fork would save.

Pure; reads the mirror. Everything here is exact: where something cannot be known, nothing is said.
"""

from collections import Counter, defaultdict
from collections.abc import Sequence
from typing import NamedTuple

from pagedchat.engine.mirror import CacheMirror, MirrorSequence

MAX_COMPARED = 64
"""Chats whose prompts are compared with each other."""


class Saving(NamedTuple):
    """What sharing saves, and how often a prompt was found."""

    entries: int
    """Entries of all block tables: the blocks that would be needed without sharing."""
    used: int
    """The blocks that are needed."""
    refs: int
    """Ref counts of all blocks together."""
    hits: int
    """Prompt tokens found in the prefix cache since the engine started."""
    queries: int
    """Prompt tokens looked up."""

    @property
    def agrees(self) -> bool:
        """Whether every entry of a table is one reference, and the other way round."""
        return self.refs == self.entries

    @property
    def hit_rate(self) -> float:
        """0 to 1; 0 while nothing was looked up."""
        return self.hits / self.queries if self.queries else 0.0


class Twins(NamedTuple):
    """Chats that begin with the same tokens and hold them in different blocks."""

    seq_ids: tuple[int, ...]
    num_blocks: int
    """Blocks that one copy of the beginning would make superfluous."""


def saving(mirror: CacheMirror) -> Saving:
    """Now."""
    entries = sum(len(sequence.block_table) for sequence in mirror.sequences.values())
    counters = mirror.last.counters if mirror.last else None
    return Saving(
        entries,
        used=sum(1 for refs in mirror.ref_counts if refs),
        refs=sum(mirror.ref_counts),
        hits=counters.prefix_hits if counters else 0,
        queries=counters.prefix_queries if counters else 0,
    )


def shared_blocks(mirror: CacheMirror, seq_ids: Sequence[int]) -> dict[tuple[int, int], int]:
    """`(a, b)` -> blocks that both hold; `(a, a)` -> those that `a` alone holds. Pairs without any are left out.

    Blocks are grouped by who holds them first, so that many chats over one prefix cost one group.
    """
    wanted = set(seq_ids)
    groups = Counter(tuple(holders) for holders in mirror.holders if holders)
    counts: Counter[tuple[int, int]] = Counter()
    for holders, number in groups.items():
        if len(holders) == 1:
            counts[holders[0], holders[0]] += number
            continue
        inside = [seq_id for seq_id in holders if seq_id in wanted]
        for a in inside:
            for b in inside:
                if a != b:
                    counts[a, b] += number
    return {pair: number for pair, number in counts.items() if pair[0] in wanted}


def find_twins(mirror: CacheMirror) -> Twins | None:
    """The chats for which a fork in place of a second prompt would have saved most blocks; None if it saves none.

    Only full blocks count, as a fork shares these for good, and only chats whose very first blocks are different
    ones: forks that went on to write the same words have saved what there was to save.
    """
    holding = [sequence for sequence in mirror.sequences.values() if sequence.block_table][:MAX_COMPARED]
    same_start: defaultdict[tuple[int, ...], list[MirrorSequence]] = defaultdict(list)
    for sequence in holding:
        if sequence.num_computed >= mirror.block_size:
            same_start[tuple(sequence.token_ids[: mirror.block_size])].append(sequence)
    apart = [group for group in same_start.values() if len({sequence.block_table[0] for sequence in group}) > 1]
    return max((_twins(mirror, group) for group in apart), key=lambda twins: twins.num_blocks, default=None)


def _twins(mirror: CacheMirror, group: list[MirrorSequence]) -> Twins:
    """Walk down the tables side by side; chats part where their tokens do."""
    size, superfluous = mirror.block_size, 0
    members: set[int] = set()
    level, groups = 0, [group]
    while groups:
        for together in groups:
            blocks = {sequence.block_table[level] for sequence in together}
            if len(blocks) > 1:
                superfluous += len(blocks) - 1
                members.update(sequence.seq_id for sequence in together)
        level += 1
        groups = [part for together in groups for part in _parted(together, level, size)]
    return Twins(tuple(sorted(members)), superfluous)


def _parted(together: list[MirrorSequence], level: int, size: int) -> list[list[MirrorSequence]]:
    """Those of them that have the same tokens in this block too, in groups of at least two."""
    start, end = level * size, (level + 1) * size
    parts: defaultdict[tuple[int, ...], list[MirrorSequence]] = defaultdict(list)
    for sequence in together:
        if sequence.num_computed >= end and len(sequence.block_table) > level:
            parts[tuple(sequence.token_ids[start:end])].append(sequence)
    return [part for part in parts.values() if len(part) > 1]
