"""The findable blocks as a tree of prefixes: a node is a run of blocks, one after the other, with the same owners.

Pure. A block knows its own hash and that of the block before it; that is all the tree is made of. It begins with
first blocks, and with blocks whose predecessor is gone, which no lookup can reach any more.
"""

from collections import defaultdict
from collections.abc import Iterator
from typing import NamedTuple

from pagedchat.engine.mirror import CacheMirror

MAX_NODES = 200


class PrefixNode(NamedTuple):
    """One run of blocks."""

    depth: int
    is_last: bool
    """Whether no sibling comes after it."""
    rails: tuple[bool, ...]
    """For each ancestor below the roots, first to last: whether a sibling of it comes further down."""
    blocks: tuple[int, ...]
    owners: tuple[int, ...]
    """Sequences that hold all of these blocks; empty where they are only kept in the cache."""
    is_reachable: bool
    """Whether a lookup from the start of a prompt can come here."""


class PrefixTree(NamedTuple):
    """Nodes from top to bottom as they are drawn."""

    nodes: list[PrefixNode]
    num_left_out: int
    """Findable blocks for which there was no room."""


def prefix_tree(mirror: CacheMirror, max_nodes: int = MAX_NODES) -> PrefixTree:
    """All findable blocks; siblings with more owners come first, then those with more blocks below them."""
    grower = _Grower(mirror)
    nodes: list[PrefixNode] = []
    for node in grower.walk():
        nodes.append(node)
        if len(nodes) >= max_nodes:
            break
    shown = sum(len(node.blocks) for node in nodes)
    return PrefixTree(nodes, grower.num_findable - shown)


class _Run(NamedTuple):
    """A node before its place is known."""

    first: int
    reachable: bool
    depth: int
    is_last: bool
    rails: tuple[bool, ...]


class _Grower:
    """Walks down the chains of hashes, without recursion: a chain may be thousands of blocks long."""

    def __init__(self, mirror: CacheMirror) -> None:
        self._mirror = mirror
        self._children: defaultdict[bytes, list[int]] = defaultdict(list)
        hashes = mirror.block_hashes
        findable = [block_id for block_id, block_hash in enumerate(hashes) if block_hash is not None]
        known = {hashes[block_id] for block_id in findable}
        self.num_findable = len(findable)
        self._orphans = []
        for block_id in findable:
            parent = mirror.block_parents[block_id]
            if parent and parent not in known:
                self._orphans.append(block_id)
            else:
                self._children[parent].append(block_id)

    def walk(self) -> Iterator[PrefixNode]:
        """Depth first, roots before orphans."""
        roots = [(block_id, True) for block_id in self._sorted(self._children[b""])]
        roots += [(block_id, False) for block_id in self._sorted(self._orphans)]
        stack = [
            _Run(block_id, reachable, 0, index == len(roots) - 1, ())
            for index, (block_id, reachable) in enumerate(roots)
        ][::-1]
        while stack:
            run = stack.pop()
            blocks, children = self._follow(run.first)
            owners = tuple(sorted(self._mirror.holders[run.first]))
            yield PrefixNode(run.depth, run.is_last, run.rails, blocks, owners, run.reachable)
            rails = (*run.rails, not run.is_last) if run.depth else ()
            below = [
                _Run(child, run.reachable, run.depth + 1, index == len(children) - 1, rails)
                for index, child in enumerate(children)
            ]
            stack += below[::-1]

    def _follow(self, block_id: int) -> tuple[tuple[int, ...], list[int]]:
        """The run that begins here, and what comes after it."""
        run = [block_id]
        while True:
            children = self._after(run[-1])
            if len(children) != 1 or not self._same_owners(block_id, children[0]):
                return tuple(run), self._sorted(children)
            run.append(children[0])

    def _same_owners(self, one: int, other: int) -> bool:
        """Mostly they came to both in the same order."""
        owners, others = self._mirror.holders[one], self._mirror.holders[other]
        return owners == others or sorted(owners) == sorted(others)

    def _after(self, block_id: int) -> list[int]:
        block_hash = self._mirror.block_hashes[block_id]
        return [] if block_hash is None else self._children.get(block_hash, [])

    def _sorted(self, block_ids: list[int]) -> list[int]:
        return sorted(block_ids, key=lambda block_id: (-len(self._mirror.holders[block_id]), block_id))
