"""How the gates and values of more than 64 rows are cut into tiles for clusters of Hopper's multiprocessors.

Arithmetic only.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache

from pagedchat.jit.kernel_file import Constants

CHUNK = 64
"""Inner elements that are fetched and multiplied at a time, as in kernels/products/wide_gates.cu."""
PIECE = 8
"""What widths are a multiple of: 16 bytes."""
BOX_ROWS, BOX_COLUMNS = 16, 32
"""Of the output, that a warp stores at once."""
_TILES = ((128, (64, 128, 192, 256)), (256, (64, 128, 192)))
"""Tokens of a tile, and sums of each of them: gates and values. Two warpgroups have registers for no more."""
_MOST_SUMS_IN_TURNS = 128 * 192
"""Of a tile that one warpgroup makes by itself."""
_SHARED_WEIGHTS, _SHARED_TOKENS = 1, 2
"""What two thread blocks of a cluster fetch together."""
_FEWEST_STAGES, _MOST_STAGES = 3, 8
_NUM_THREADS = 384
_CLUSTER = 2
_BOX_BYTES = 8 * 2 * 2 * BOX_ROWS * BOX_COLUMNS
"""Of all boxes in shared memory, two for each warp that multiplies."""

# Of an H200, in cycles of a multiprocessor: with these the tiles that come out are, over 56 measurements, 1.4 %
# slower than the quickest of all that were tried, in the worst case 13 %.
_PRODUCTS = 2048 * 0.85
"""A cycle, of one multiprocessor."""
_L2_BYTES, _OWN_BYTES = 132 * 38, 44
"""A cycle: out of the L2 cache to all multiprocessors, to one of them."""
_LEAST_CHUNK = 450
"""Of a chunk, however small it is."""
_FIXED = 4000
"""Before the first product of a launch and behind the last."""
_FINISH = 0.2
"""To activate and store a sum of a tile."""


@dataclass(frozen=True, slots=True)
class WidePlan:
    """Constants of a variant, and its grid."""

    tokens: int
    """Of a tile: 128 or 256."""
    sums: int
    """Of each of them: rows of the weight, gates and values."""
    shared: int
    """What two thread blocks of a cluster have in common: 1: weights; 2: tokens."""
    in_turns: bool
    """Whether each warpgroup makes whole tiles, every other one; else both make half of each."""
    stages: int
    """Chunks in shared memory at a time."""
    num_blocks: int
    """Thread blocks: all of them run at the same time."""

    @property
    def constants(self) -> Constants:
        """For the compiler, besides what the product itself is."""
        return {
            "TOKENS": self.tokens,
            "SUMS": self.sums,
            "SHARED": self.shared,
            "TURNS": int(self.in_turns),
            "STAGES": self.stages,
        }

    @property
    def num_threads(self) -> int:
        """Of a thread block: two warpgroups that multiply, one that fetches."""
        return _NUM_THREADS

    @property
    def shared_bytes(self) -> int:
        """Size of `Shared` in kernels/products/wide_gates.cu."""
        return self.stages * _stage_bytes(self.tokens, self.sums) + _BOX_BYTES


@cache
def plan_wide(
    in_features: int, out_features: int, num_tokens: int, num_multiprocessors: int, shared_limit: int
) -> WidePlan | None:
    """The division with which gates and values take the least time by `_cycles`.

    Args:
        in_features: the inner dimension.
        out_features: columns of the output, each with a gate and a value.
        num_tokens: of the launch.
        num_multiprocessors: of the GPU.
        shared_limit: bytes of shared memory that a thread block can have.

    Returns:
        None where the kernel cannot do it.
    """
    if in_features % PIECE or out_features % PIECE or num_multiprocessors < _CLUSTER:
        return None
    times: dict[WidePlan, float] = {}
    chunks = -(-in_features // CHUNK)
    for tokens, sums, shared, in_turns in _tiles():
        stages = num_wide_stages(tokens, sums, shared_limit)
        if stages < _FEWEST_STAGES:
            continue
        rows = -(-num_tokens // (tokens * (1 + (shared == _SHARED_WEIGHTS))))
        columns = -(-2 * out_features // (sums * (1 + (shared == _SHARED_TOKENS))))
        clusters = min(num_multiprocessors // _CLUSTER, rows * columns)
        plan = WidePlan(tokens, sums, shared, in_turns, stages, clusters * _CLUSTER)
        times[plan] = _cycles(plan, -(-rows * columns // clusters), chunks)
    return min(times, key=times.__getitem__, default=None)


def num_wide_stages(tokens: int, sums: int, shared_limit: int) -> int:
    """Chunks of a tile that there is room for."""
    return min(_MOST_STAGES, (shared_limit - _BOX_BYTES) // _stage_bytes(tokens, sums))


def _tiles() -> Iterator[tuple[int, int, int, bool]]:
    """Tokens, sums of each, what is shared, whether warpgroups take turns."""
    for tokens, all_sums in _TILES:
        for sums in all_sums:
            for shared in (_SHARED_WEIGHTS, _SHARED_TOKENS):
                yield tokens, sums, shared, False
                if tokens * sums <= _MOST_SUMS_IN_TURNS:
                    yield tokens, sums, shared, True


def _cycles(plan: WidePlan, rounds: int, chunks: int) -> float:
    """Of the cluster that has the most to do."""
    tokens = plan.tokens / (1 + (plan.shared == _SHARED_TOKENS))
    sums = plan.sums / (1 + (plan.shared == _SHARED_WEIGHTS))
    fetch = 2 * CHUNK * (tokens + sums) / min(_OWN_BYTES, _L2_BYTES / plan.num_blocks)
    chunk = max(plan.tokens * plan.sums * CHUNK / _PRODUCTS, fetch, _LEAST_CHUNK)
    finish = _FINISH * plan.tokens * plan.sums
    finishes = 2 if plan.in_turns else rounds  # those of tiles but the last are beside other products
    return rounds * chunks * chunk + finishes * finish + _FIXED


def _stage_bytes(tokens: int, sums: int) -> int:
    """Of a chunk in shared memory, barriers included."""
    return 2 * CHUNK * (tokens + sums) + 16
