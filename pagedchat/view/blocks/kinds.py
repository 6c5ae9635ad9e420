"""What a block looks like on the pool map: its *kind*, by owner, ref count, age, fill or hash state. Pure.

A kind is a short string, and a byte where many blocks are kept. It is no colour and no sign yet: those follow from
it (`glyph`, `BlockPaint`). Blocks that nobody holds have the same kinds in all modes, except that `age` also tells
how old what is cached is.
"""

from bisect import bisect_right
from collections.abc import Callable
from typing import Literal

from pagedchat.engine.mirror import CacheMirror
from pagedchat.view.owners import ALL_GLYPHS as OWNERS

ColorMode = Literal["owner", "refs", "age", "fill", "hash"]
COLOR_MODES: tuple[ColorMode, ...] = ("owner", "refs", "age", "fill", "hash")
MODE_WORDS: dict[ColorMode, str] = {
    "owner": "owner", "refs": "ref count", "age": "age", "fill": "fill", "hash": "hash state"
}  # fmt: skip
MAX_REFS = 4
FULL = 8
"""Steps of fill that a block is told in."""
AGE_LIMITS = (4, 32, 256, 2048)
"""A block whose last change is fewer than so many reports back belongs to this class of age."""
_AGES = tuple(f"age{index}" for index in range(len(AGE_LIMITS) + 1))

IDLE = ("free", "withheld", "cached", "pinned")
"""Kinds of blocks that nobody holds; in a cell of several blocks a later one outweighs those before it."""
KINDS = (
    *IDLE, "shared", "partial", "findable",
    *(f"ref{refs}" for refs in range(1, MAX_REFS + 1)),
    *_AGES,
    *(f"fill{step}" for step in range(FULL + 1)),
    *(f"@{owner}" for owner in OWNERS),
)  # fmt: skip
"""All of them; `@` and the owner's sign stand for a block of one owner. The first one, `free`, has the code 0.

Beside its kind a block may have a *mark*, whatever the mode: `pinned` (not to be evicted), `next` (to be taken
next) or `copied` (just copied into).
"""
CODES = {kind: code for code, kind in enumerate(KINDS)}

_GLYPHS = {
    "free": "░", "withheld": "×", "cached": "·", "pinned": "◊", "shared": "▓", "partial": "▒", "findable": "█",
    "ref4": "+", "next": "▼", "copied": "*", "skips": "»",
}  # fmt: skip
_ASCII = {
    "free": ".", "withheld": "-", "cached": ":", "pinned": "!", "shared": "#", "partial": "=", "findable": "%",
    "ref4": "+", "next": "x", "copied": "*", "skips": ">",
}  # fmt: skip
_LEVELS = " ▄▄▄▄▓▓▓█"


def glyph(sign: str, ascii_only: bool = False) -> str:
    """A kind or a mark as one character, one cell wide."""
    found = (_ASCII if ascii_only else _GLYPHS).get(sign)
    if found is None:
        found = sign[-1]
        if sign.startswith("fill") and not ascii_only:
            found = _LEVELS[int(found)]
    return found


def age_class(age: int) -> int:
    """Reports since the last change -> index of the class, 0 for the newest."""
    return bisect_right(AGE_LIMITS, age)


class CellKinds:
    """Tells the kind of a block.

    Args:
        mirror: the cache.
        mode: what colours mean.
        owner_kind: sequence id -> the kind of a block that it alone holds.
    """

    def __init__(self, mirror: CacheMirror, mode: ColorMode, owner_kind: Callable[[int], str]) -> None:
        self._mirror = mirror
        self._owner_kind = owner_kind
        self._in_use = {
            "owner": self._by_owner, "refs": self._by_refs, "age": self._by_age, "fill": self._by_fill,
            "hash": self._by_hash,
        }[mode]  # fmt: skip
        self._cached = self._by_age if mode == "age" else lambda _: "cached"

    def block(self, block_id: int) -> str:
        """Kind of one block."""
        mirror = self._mirror
        if mirror.ref_counts[block_id]:
            return self._in_use(block_id)
        if block_id in mirror.cached_blocks:
            return self._cached(block_id)
        if block_id in mirror.pinned:
            return "pinned"
        return "withheld" if block_id in mirror.withheld else "free"

    def _by_owner(self, block_id: int) -> str:
        holders = self._mirror.holders[block_id]
        return "shared" if len(holders) > 1 else self._owner_kind(holders[0])

    def _by_refs(self, block_id: int) -> str:
        return f"ref{min(self._mirror.ref_counts[block_id], MAX_REFS)}"

    def _by_age(self, block_id: int) -> str:
        return _AGES[age_class(self._mirror.num_reports - self._mirror.touched.get(block_id, 0))]

    def _by_fill(self, block_id: int) -> str:
        return f"fill{self._mirror.fill(block_id) * FULL // self._mirror.block_size}"

    def _by_hash(self, block_id: int) -> str:
        if block_id in self._mirror.pinned:
            return "pinned"
        return "partial" if self._mirror.block_hashes[block_id] is None else "findable"
