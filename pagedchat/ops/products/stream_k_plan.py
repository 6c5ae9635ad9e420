"""How a product over 9 to 256 tokens and a weight of any size is cut for a GPU. Arithmetic only."""

from bisect import bisect_left
from dataclasses import dataclass
from functools import cache

from pagedchat.jit.kernel_file import Constants

MAX_TOKENS = 256
"""Of a launch."""
CHUNK = 64
"""Inner elements that are multiplied at a time, as in kernels/products/stream_k_share.cuh."""
PIECE = 8
"""Columns of the output that are written at a time."""
TOKEN_COUNTS = (16, 32, 48, 64, 96, 128, 192, 256)
"""That there are products of: a launch has the next larger one."""
_MOST_OF_LARGE_TILES = 128
"""Tokens up to which the sums of 256 rows of a weight fit into the registers of two warpgroups."""
_FEWEST_STAGES = 2
_BARRIER_BYTES = 16
"""Of a stage."""
_NUMBER_BYTES = 16
"""A thread block's number, and what alignment takes."""
_NUM_THREADS = 384


@dataclass(frozen=True, slots=True)
class StreamKPlan:
    """Constants of a variant, and its grid."""

    tokens: int
    """Padding included."""
    rows: int
    """Of the weight, of a tile."""
    stages: int
    """Chunks in shared memory at a time."""
    num_blocks: int
    """Thread blocks: all of them run at the same time."""

    @property
    def constants(self) -> Constants:
        """For the compiler, besides what the product itself is."""
        return {"TOKENS": self.tokens, "ROWS": self.rows, "STAGES": self.stages}

    @property
    def num_threads(self) -> int:
        """Of a thread block: two warpgroups that multiply, one that fetches."""
        return _NUM_THREADS

    def shared_bytes(self, paired: bool) -> int:
        """Size of `Shared` in kernels/products/stream_k_linear.cu."""
        return self.stages * _stage_bytes(self.tokens, self.rows) + _result_bytes(self.tokens, self.rows, paired)


@cache
def plan_stream_k(
    in_features: int,
    out_features: int,
    num_tokens: int,
    paired: bool,
    num_multiprocessors: int,
    shared_limit: int,
    rows: int = 0,
) -> StreamKPlan | None:
    """Tiles and stages of a product; None where the kernel cannot do it.

    Args:
        in_features: the inner dimension.
        out_features: columns of the output.
        num_tokens: of the launch.
        paired: whether the weight has a gate and a value for each column.
        num_multiprocessors: of the GPU.
        shared_limit: bytes of shared memory that a thread block can have.
        rows: of a tile, 128 or 256, to measure others than the plan's own; 0: the plan's.
    """
    if not 1 <= num_tokens <= MAX_TOKENS or in_features % CHUNK or out_features % PIECE:
        return None
    tokens = TOKEN_COUNTS[bisect_left(TOKEN_COUNTS, num_tokens)]
    largest = 256 if tokens <= _MOST_OF_LARGE_TILES else 128
    of_tile = min(rows or largest, largest)
    left = shared_limit - _result_bytes(tokens, of_tile, paired)
    stages = left // _stage_bytes(tokens, of_tile)
    if stages < _FEWEST_STAGES:
        return None
    tiles = -(-out_features // (of_tile // (1 + paired)))
    return StreamKPlan(tokens, of_tile, stages, min(num_multiprocessors, tiles * (in_features // CHUNK)))


def _stage_bytes(tokens: int, rows: int) -> int:
    return 2 * CHUNK * (tokens + rows) + _BARRIER_BYTES


def _result_bytes(tokens: int, rows: int, paired: bool) -> int:
    return 2 * tokens * (rows // (1 + paired) + PIECE) + _NUMBER_BYTES
