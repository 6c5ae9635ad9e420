"""How a product of up to 64 rows is cut for clusters of Hopper's multiprocessors. Arithmetic only."""

from bisect import bisect_left
from dataclasses import dataclass
from functools import cache

from pagedchat.jit.kernel_file import Constants

ROWS = 64
"""Of the weight, of a tile."""
MAX_TOKENS = 64
"""Of a launch."""
_TOKENS = (16, 32, MAX_TOKENS)
"""Of a tile: a launch has the next larger one."""
_CHUNK = 64
"""Inner elements that are multiplied at a time, as in kernels/clusters/cluster_linear.cu."""
_PIECE = 8
"""Elements that are copied and written at a time."""
_NUM_THREADS = 128 + 32
"""A warpgroup multiplies, a warp fetches."""
_BARRIER_BYTES = 16
"""Of a stage, and at most for all sums and what alignment takes."""
_RESERVED_BYTES = 1 << 10
"""Of shared memory that each thread block costs a multiprocessor besides its own."""
_RESIDENT = 2
"""Thread blocks for which a multiprocessor has room, those of this product and of the next, but where one is alone
there."""

# With these every product of DECODE_STEPS.md's tables, of 16 to 64 rows, gets the cut that was the quickest of all
# that were tried, or one at most 4 % slower.
_SLICES = (8, 4, 2, 1)
"""Thread blocks of a tile: as many as leave at most `_MOST_SLICED` a multiprocessor."""
_MOST_SLICED = 1.5
_FEWEST_CHUNKS, _FEWEST_STAGES = 2, 2
"""Of a slice; in shared memory at a time."""
_FEWEST_FINISHED, _MATRIX_TOKENS = 4, 8
"""Tokens for each slice, so that every thread block has gates and their values to finish; tokens of a matrix, which
is copied whole."""
_SHARERS, _WIDEST_SHARED = 4, 2
"""Tiles that share tokens, and slices that they have at most: a cluster of 8."""
_FEW_TOKENS = 32
"""Up to so many tokens tiles that all run at once have their own, if they are not sliced."""
_ALONE_SLICES, _ALONE_SHARE = 2, 5 / 7
"""Thread blocks of so many slices a tile, where there are no more than multiprocessors, take this share of shared
memory, so that each is alone. With room for two they come in twos to the multiprocessors that are free first, and
others get none."""
_CROWDED = 4 / 3
"""Thread blocks a multiprocessor from which on some have two, for which the way out of the L2 cache is too narrow
unless tokens are shared."""
_NEARLY_ALL = 0.85
"""Of all places, in the last round: clusters of `_SHARERS` do not find room on so many, single thread blocks do."""
_MOST_TILES = 4.5
"""A multiprocessor: with many more beginning and ending each takes longer than streaming through all at once."""


@dataclass(frozen=True, slots=True)
class ClusterPlan:
    """Constants of a variant."""

    tokens: int
    """Of a tile, padding included."""
    slices: int
    """Thread blocks that share a tile's inner elements."""
    sharers: int
    """Tiles for which tokens are fetched together."""
    stages: int
    """Chunks in shared memory at a time."""

    @property
    def constants(self) -> Constants:
        """For the compiler, besides what the product itself is."""
        return {
            "TOKENS": self.tokens,
            "SLICES": self.slices,
            "SHARERS": self.sharers,
            "STAGES": self.stages,
        }

    @property
    def num_threads(self) -> int:
        """Of a thread block."""
        return _NUM_THREADS

    @property
    def shared_bytes(self) -> int:
        """Size of `Shared` in the kernel."""
        return self.stages * _stage_bytes(self.tokens) + _BARRIER_BYTES

    def num_blocks(self, out_features: int, paired: bool) -> int:
        """Thread blocks of a launch, in whole clusters."""
        return -(-_num_tiles(out_features, paired) // self.sharers) * self.sharers * self.slices


@cache
def plan_clusters(
    in_features: int,
    out_features: int,
    num_tokens: int,
    paired: bool,
    num_multiprocessors: int,
    shared_limit: int,
) -> ClusterPlan | None:
    """How a product is cut; None where the kernel cannot do it, or has too many tiles to do.

    Args:
        in_features: the inner dimension.
        out_features: columns of the output.
        num_tokens: of the launch.
        paired: whether the weight has a gate and a value for each column.
        num_multiprocessors: of the GPU.
        shared_limit: bytes of shared memory that a thread block can have.
    """
    tiles, chunks = _num_tiles(out_features, paired), -(-in_features // _CHUNK)
    is_whole = in_features % _PIECE == 0 and out_features % _PIECE == 0
    if not is_whole or not 1 <= num_tokens <= MAX_TOKENS or tiles > _MOST_TILES * num_multiprocessors:
        return None
    most = max(1, min(chunks // _FEWEST_CHUNKS, _tile_tokens(num_tokens) // _FEWEST_FINISHED))
    slices = next(n for n in _SLICES if n == 1 or (n <= most and n * tiles <= _MOST_SLICED * num_multiprocessors))
    sharers = _num_sharers(slices, slices * tiles, _tile_tokens(num_tokens), num_multiprocessors)
    tokens = _tile_tokens(max(num_tokens, _MATRIX_TOKENS * sharers))
    is_alone = slices == _ALONE_SLICES and slices * tiles <= num_multiprocessors
    stages = _num_stages(tokens, shared_limit, is_alone=is_alone)
    return None if stages < _FEWEST_STAGES else ClusterPlan(tokens, slices, sharers, stages)


def _tile_tokens(num_tokens: int) -> int:
    return _TOKENS[bisect_left(_TOKENS, num_tokens)]


def _num_tiles(out_features: int, paired: bool) -> int:
    return -(-out_features // (ROWS // (1 + paired)))


def _num_stages(tokens: int, shared_limit: int, *, is_alone: bool) -> int:
    """That find room in the part of a multiprocessor that a thread block has."""
    half = (shared_limit + _RESERVED_BYTES) // _RESIDENT - _RESERVED_BYTES
    room = int(shared_limit * _ALONE_SHARE) if is_alone else half
    return (room - _BARRIER_BYTES) // _stage_bytes(tokens)


def _num_sharers(slices: int, num_blocks: int, tokens: int, num_multiprocessors: int) -> int:
    places = _RESIDENT * num_multiprocessors
    if slices == 1 and tokens <= _FEW_TOKENS and num_blocks <= places:
        return 1
    last = (num_blocks - 1) % places + 1
    if slices > _WIDEST_SHARED or num_blocks < _CROWDED * num_multiprocessors or last > _NEARLY_ALL * places:
        return 1
    return _SHARERS


def _stage_bytes(tokens: int) -> int:
    return 2 * _CHUNK * (tokens + ROWS) + _BARRIER_BYTES
