"""What the colours and signs of the pool map mean, with how many blocks are of each kind. Pure."""

from collections.abc import Iterable
from typing import NamedTuple

from rich.cells import cell_len

from pagedchat.view.blocks.kinds import AGE_LIMITS, FULL, KINDS, ColorMode
from pagedchat.view.blocks.pool_kinds import BlockKinds


class LegendItem(NamedTuple):
    """One kind or mark."""

    sign: str
    """Its name, as `kinds.glyph` takes it."""
    words: str
    num_blocks: int | None
    """Blocks of this kind; None for a mark."""

    @property
    def text(self) -> str:
        """What stands behind the sign."""
        if self.num_blocks is None:
            return self.words
        return f"{self.words} ×{self.num_blocks:,}".lstrip()


_OWNERS = tuple(kind for kind in KINDS if kind[0] == "@")
_IN_USE: dict[ColorMode, tuple[tuple[str, str], ...]] = {
    "owner": (("shared", "shared"), *((kind, "") for kind in _OWNERS)),
    "refs": (("ref1", "owner"), ("ref2", "owners"), ("ref3", ""), ("ref4", "more")),
    "age": (
        *((f"age{index}", f"<{limit}{' steps' * (not index)}") for index, limit in enumerate(AGE_LIMITS)),
        (f"age{len(AGE_LIMITS)}", "older"),
    ),
    "fill": tuple((f"fill{step}", "full" if step == FULL else "") for step in range(FULL + 1)),
    "hash": (("partial", "not findable"), ("findable", "findable")),
}
_IDLE = (("cached", "cached"), ("pinned", "pinned"), ("withheld", "withheld"), ("free", "free"))
_MARKS = (("copied", "copied"), ("next", "next out"))
_RARE = frozenset({"pinned", "withheld", "fill0", *_OWNERS})
"""Kinds that are left out while there are none."""
_NUM_SIGNS = 2
"""Cells of a sign and the space after it."""
GAP = 2
"""Cells between two items."""


def legend(kinds: BlockKinds, mode: ColorMode, marks: Iterable[str], width: int) -> list[LegendItem]:
    """As much of the legend as fits into `width` cells: first kinds without blocks go,
    then words from the end, then the end."""
    entries = (*_IN_USE[mode], *(entry for entry in _IDLE if mode != "age" or entry[0] != "cached"))
    items = [LegendItem(kind, words, kinds.count(kind)) for kind, words in entries]
    items = [item for item in items if item.num_blocks or item.sign not in _RARE]
    items += [LegendItem(mark, words, None) for mark, words in _MARKS if mark in marks]
    excess = sum(map(_width, items)) - GAP - width
    if excess > 0:
        excess -= sum(_width(item) for item in items if item.num_blocks == 0)
        items = [item for item in items if item.num_blocks != 0]
    for index in reversed(range(len(items))):
        if excess > 0 and items[index].num_blocks is not None:
            shorter = items[index]._replace(words="")
            excess -= _width(items[index]) - _width(shorter)
            items[index] = shorter
    while len(items) > 1 and excess > 0:
        excess -= _width(items.pop())
    return items


def _width(item: LegendItem) -> int:
    return _NUM_SIGNS + cell_len(item.text) + GAP
