"""How `invariant_linear` cuts up its work. The order of its sums follows from the inner dimension alone; which tile
does them may follow from anything. Arithmetic only.
"""

from dataclasses import dataclass
from functools import cache

from pagedchat.jit.kernel_file import Constants

CHUNK = 32
"""Elements of the inner dimension, as in kernels/products/invariant_linear.cu."""
PIECE = 8
"""Elements of 16 bytes: what widths are multiples of."""
MAX_PARTS = 8
_LEAST_CHUNKS = 4
"""Of a part; a shorter one is not worth a warp."""
_ROW_BYTES = 2 * CHUNK


def part_count(in_features: int) -> int:
    """Parts of every sum over so many elements, none of them empty. Nothing else may have a say in it."""
    chunks = -(-in_features // CHUNK)
    each = -(-chunks // min(MAX_PARTS, max(1, chunks // _LEAST_CHUNKS)))
    return -(-chunks // each)


@dataclass(frozen=True, slots=True)
class InvariantTile:
    """What a thread block makes: weight rows times input rows."""

    side_by_side: bool
    """Whether each part of the inner dimension has a warp; else all warps do one part after the other."""
    warp: tuple[int, int]
    """Weight rows and input rows of a warp."""
    warps: tuple[int, int] = (1, 1)
    """That share the tile's weight rows, and its input rows."""
    stages: int = 4
    """Chunks in shared memory, at most."""

    @property
    def weight_rows(self) -> int:
        """Of a thread block."""
        return self.warp[0] * self.warps[0]

    @property
    def input_rows(self) -> int:
        """Of a thread block."""
        return self.warp[1] * self.warps[1]

    @property
    def constants(self) -> Constants:
        """For the compiler; there may have to be fewer stages."""
        return {
            "SIDE_BY_SIDE": int(self.side_by_side),
            "WARPS_W": self.warps[0],
            "WARPS_T": self.warps[1],
            "WARP_W": self.warp[0],
            "WARP_T": self.warp[1],
            "STAGES": self.stages,
        }

    def groups(self, parts: int) -> int:
        """Of warps, each with its own part."""
        return parts if self.side_by_side else 1

    def num_blocks(self, out_features: int, num_rows: int) -> int:
        """Thread blocks of a product."""
        return -(-out_features // self.weight_rows) * -(-num_rows // self.input_rows)


ONE = InvariantTile(True, (16, 8), stages=6)
TWO = InvariantTile(True, (16, 16), stages=6)
FOUR = InvariantTile(True, (32, 32))
EIGHT = InvariantTile(True, (32, 64))
"""For up to 8, 16, 32 and 64 rows: little work, so that many warps have to share it."""
SQUARE = InvariantTile(False, (32, 32), (2, 2), stages=5)
LARGE = InvariantTile(False, (64, 32), (2, 4))
"""Where there is enough for everybody: fewer reads for each product."""
TILES = (ONE, TWO, FOUR, EIGHT, SQUARE, LARGE)


@dataclass(frozen=True, slots=True)
class InvariantPlan:
    """A product's launch."""

    tile: InvariantTile
    parts: int
    stages: int

    @property
    def num_threads(self) -> int:
        """Of a thread block."""
        return 32 * self.tile.groups(self.parts) * self.tile.warps[0] * self.tile.warps[1]

    @property
    def shared_bytes(self) -> int:
        """Of a thread block: the stages, and in their place the sums."""
        return max(self.stages * _stage_bytes(self.tile, self.parts), _sum_bytes(self.tile, self.parts))

    @property
    def constants(self) -> Constants:
        """For the compiler."""
        return {**self.tile.constants, "PARTS": self.parts, "STAGES": self.stages}


def _stage_bytes(tile: InvariantTile, parts: int) -> int:
    return tile.groups(parts) * (tile.weight_rows + tile.input_rows) * _ROW_BYTES


def _sum_bytes(tile: InvariantTile, parts: int) -> int:
    return 4 * tile.groups(parts) * tile.input_rows * (tile.weight_rows + 4)


@cache
def plan_invariant(
    in_features: int, out_features: int, num_rows: int, num_multiprocessors: int, shared_limit: int
) -> InvariantPlan:
    """How a product is launched.

    Args:
        in_features: a multiple of 8.
        out_features: any.
        num_rows: of the input.
        num_multiprocessors: of the GPU.
        shared_limit: bytes that a thread block may have.
    """
    tiles = _tiles_for(out_features, num_rows, num_multiprocessors)
    return next(plan for tile in tiles if (plan := plan_tile(tile, in_features, shared_limit)) is not None)


def plan_tile(tile: InvariantTile, in_features: int, shared_limit: int) -> InvariantPlan | None:
    """The launch of one tile; None where it does not fit into shared memory."""
    parts = part_count(in_features)
    stages = min(tile.stages, shared_limit // _stage_bytes(tile, parts))
    if stages < 2 or _sum_bytes(tile, parts) > shared_limit:
        return None
    return InvariantPlan(tile, parts, stages)


def _tiles_for(out_features: int, num_rows: int, num_multiprocessors: int) -> tuple[InvariantTile, ...]:
    """The best first. The last one fits on every GPU."""
    for tile in (ONE, TWO, FOUR):
        if num_rows <= tile.input_rows:
            return tile, SQUARE
    large = (SQUARE,) if num_rows <= SQUARE.input_rows else (LARGE, SQUARE)
    filling = tuple(tile for tile in large if tile.num_blocks(out_features, num_rows) >= num_multiprocessors)
    return (*filling, EIGHT, SQUARE)
