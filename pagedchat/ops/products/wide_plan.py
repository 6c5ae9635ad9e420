"""How a product over more than 64 rows is cut into tiles for clusters of Hopper's multiprocessors. Arithmetic
only.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache

from pagedchat.jit.kernel_file import Constants

CHUNK = 64
"""Inner elements that are fetched and multiplied at a time, as in kernels/products/wide_linear.cu."""
PIECE = 8
"""Columns of the output that are written at a time."""
_TOKENS, _SUMS = (128, 256), (64, 96, 128, 160, 192, 224, 256)
"""Of a tile."""
BOX_ROWS, BOX_COLUMNS = 16, 32
"""Of the output, that a warp stores at once."""
_BOX_BYTES = 8 * 2 * 2 * BOX_ROWS * BOX_COLUMNS
"""Of all boxes in shared memory, two for each warp that multiplies."""
_MOST_SUMS = 256 * 192
"""Of a tile: as many as two warpgroups have registers for."""
ALONE, SHARED_WEIGHTS, SHARED_TOKENS = 0, 1, 2
"""What two thread blocks of a cluster fetch together."""
_FEWEST_STAGES, _MOST_STAGES = 3, 8
_NUM_THREADS = 384
_NUMBER_BYTES = 16
"""A cluster's number, and what alignment takes."""

# Of an H200, in cycles of a multiprocessor.
_PRODUCTS = 2048 * 0.85
"""A cycle, of one multiprocessor."""
_BYTES = 26
"""A cycle, out of the L2 cache for each multiprocessor while all of them fetch."""
_BESIDE = 3000
"""Before the first product of a launch and behind the last."""
_LEFT_BYTES = 32
"""A cycle, of sums that thread blocks leave for others and fetch from them."""


@dataclass(frozen=True, slots=True)
class WidePlan:
    """Constants of a variant, and its grid."""

    tokens: int
    """Of a tile: 128 or 256."""
    sums: int
    """Of each of them: rows of the weight."""
    shared: int
    """What two thread blocks of a cluster have in common: 0: they are none; 1: weights; 2: tokens."""
    stages: int
    """Chunks in shared memory at a time."""
    num_blocks: int
    """Thread blocks: all of them run at the same time."""
    streamed: int
    """Tiles, or with a cluster pairs of them, that are cut into equal parts for all clusters."""

    @property
    def constants(self) -> Constants:
        """For the compiler, besides what the product itself is."""
        return {"TOKENS": self.tokens, "SUMS": self.sums, "SHARED": self.shared, "STAGES": self.stages}

    @property
    def num_threads(self) -> int:
        """Of a thread block: two warpgroups that multiply, one that fetches."""
        return _NUM_THREADS

    @property
    def shared_bytes(self) -> int:
        """Size of `Shared` in kernels/products/wide_linear.cu."""
        return self.stages * _stage_bytes(self.tokens, self.sums) + _NUMBER_BYTES + _BOX_BYTES

    @property
    def left_bytes(self) -> int:
        """Of sums that thread blocks leave for others."""
        return 4 * self.num_blocks * self.tokens * self.sums if self.streamed else 0


@cache
def plan_wide(
    in_features: int,
    out_features: int,
    num_tokens: int,
    paired: bool,
    num_multiprocessors: int,
    shared_limit: int,
) -> WidePlan | None:
    """The division with which a product takes the least time by `_cycles`; None where the kernel cannot do it.

    Args:
        in_features: the inner dimension.
        out_features: columns of the output.
        num_tokens: of the launch.
        paired: whether the weight has a gate and a value for each column.
        num_multiprocessors: of the GPU.
        shared_limit: bytes of shared memory that a thread block can have.
    """
    if in_features % PIECE or out_features % PIECE:
        return None
    times: dict[WidePlan, float] = {}
    for tokens, sums, shared in _tiles(paired):
        stages = min(_MOST_STAGES, (shared_limit - _NUMBER_BYTES - _BOX_BYTES) // _stage_bytes(tokens, sums))
        if stages < _FEWEST_STAGES or (tokens == _TOKENS[1] and num_tokens <= _TOKENS[0]):
            continue
        rows = -(-num_tokens // (tokens * (1 + (shared == SHARED_WEIGHTS))))
        columns = -(-out_features // (sums // (1 + paired) * (1 + (shared == SHARED_TOKENS))))
        together = 1 if shared == ALONE else 2
        clusters, chunks = num_multiprocessors // together, -(-in_features // CHUNK)
        for streamed in _streamed(rows * columns, clusters):
            parts = streamed * chunks if streamed else rows * columns
            used = min(clusters, parts)
            plan = WidePlan(tokens, sums, shared, stages, used * together, streamed)
            times[plan] = _cycles(plan, rows * columns, chunks, used)
    return min(times, key=times.__getitem__, default=None)


def _tiles(paired: bool) -> Iterator[tuple[int, int, int]]:
    """Tokens, sums of each, what is shared."""
    for tokens in _TOKENS:
        for sums in _SUMS:
            if sums % (BOX_COLUMNS * (1 + paired)) == 0 and tokens * sums <= _MOST_SUMS:
                yield from ((tokens, sums, shared) for shared in (SHARED_WEIGHTS, SHARED_TOKENS))


def _streamed(num_tiles: int, clusters: int) -> tuple[int, ...]:
    """How many tiles may be cut into parts: none, or those that are left behind whole rounds."""
    left = num_tiles % clusters
    return (0,) if left == 0 else (0, left)


def _cycles(plan: WidePlan, num_tiles: int, chunks: int, clusters: int) -> float:
    """Of the cluster that has the most to do."""
    tokens = plan.tokens / (1 + (plan.shared == SHARED_TOKENS))
    sums = plan.sums / (1 + (plan.shared == SHARED_WEIGHTS))
    chunk = max(plan.tokens * plan.sums * CHUNK / _PRODUCTS, 2 * CHUNK * (tokens + sums) / _BYTES)
    whole = num_tiles - plan.streamed
    rounds = -(-whole // clusters) * chunks + plan.streamed * chunks / clusters
    left = 2 * 4 * plan.tokens * plan.sums / _LEFT_BYTES if plan.streamed else 0.0
    return rounds * chunk + left + _BESIDE


def _stage_bytes(tokens: int, sums: int) -> int:
    """Of a chunk in shared memory, barriers included."""
    return 2 * CHUNK * (tokens + sums) + 16
