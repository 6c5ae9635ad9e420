"""What a cell of the pool map shows: its kind, by owner, by ref count or by state. Pure; knows no colours.

A *kind* is a short string: `free`, `cached`, `shared`, `copied`, `next`, `partial`, `full`, `ref1` to `ref4` (four
or more), and `@` with the owner's glyph for a block of one owner.
"""

from collections.abc import Callable, Iterable
from typing import Literal

from pagedchat.engine.mirror import CacheMirror

ColorMode = Literal["owner", "refs", "state"]
COLOR_MODES: tuple[ColorMode, ...] = ("owner", "refs", "state")
MAX_REFS = 4

GLYPHS = {
    "free": "░", "cached": "·", "shared": "▓", "copied": "*", "next": "✕", "partial": "▒", "full": "█",
    "ref1": "1", "ref2": "2", "ref3": "3", "ref4": "+",
}  # fmt: skip
"""Kinds -> what they look like in one cell; an owner's kind shows the owner's glyph."""


def glyph(kind: str) -> str:
    """One cell wide."""
    return kind[1] if kind[0] == "@" else GLYPHS[kind]


class CellKinds:
    """Tells the kind of a block, or of a cell of several blocks.

    Args:
        mirror: the cache.
        mode: what colours mean.
        owner_kind: sequence id -> the kind of a block that it alone holds.
    """

    def __init__(self, mirror: CacheMirror, mode: ColorMode, owner_kind: Callable[[int], str]) -> None:
        self.mirror = mirror
        self._owner_kind = owner_kind
        self._in_use = {"owner": self._by_owner, "refs": self._by_refs, "state": self._by_state}[mode]

    def block(self, block_id: int) -> str:
        """Kind of one block."""
        if self.mirror.ref_counts[block_id]:
            return self._in_use(block_id)
        return "cached" if block_id in self.mirror.cached_blocks else "free"

    def cell(self, blocks: Iterable[int]) -> str:
        """Kind of several blocks in one cell: the most frequent one among those in use, if any is."""
        counts: dict[str, int] = {}
        for block_id in blocks:
            kind = self.block(block_id)
            counts[kind] = counts.get(kind, 0) + 1
        idle = counts.pop("free", 0), counts.pop("cached", 0)
        if counts:
            return max(counts, key=counts.__getitem__)
        return "cached" if idle[1] else "free"

    def _by_owner(self, block_id: int) -> str:
        holders = self.mirror.holders[block_id]
        return "shared" if len(holders) > 1 else self._owner_kind(holders[0])

    def _by_refs(self, block_id: int) -> str:
        return f"ref{min(self.mirror.ref_counts[block_id], MAX_REFS)}"

    def _by_state(self, block_id: int) -> str:
        if self.mirror.ref_counts[block_id] > 1:
            return "shared"
        return "full" if self.mirror.fill(block_id) == self.mirror.block_size else "partial"
