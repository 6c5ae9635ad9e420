"""How a product over 9 to 64 tokens and a weight of any size is cut for a GPU. Arithmetic only."""

from bisect import bisect_left
from dataclasses import dataclass
from functools import cache

from pagedchat.jit.kernel_file import Constants

MAX_TOKENS = 64
"""Of a launch; with more of them reading them again for every tile takes longer than a library does."""
ROWS = 128
"""Of the weight, of a tile; with 256 all of 22 products took longer."""
CHUNK = 64
"""Inner elements that are multiplied at a time, as in kernels/products/stream_k_linear.cu."""
PIECE = 8
"""Columns of the output that are written at a time."""
TOKEN_COUNTS = (16, 32, 48, 64)
"""That there are products of: a launch has the next larger one."""
_MOST_PARTS = 4
"""Thread blocks for a tile: with more of them putting their sums together takes longer than they save."""
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
    stages: int
    """Chunks in shared memory at a time."""
    num_blocks: int
    """Thread blocks: all of them run at the same time."""

    @property
    def constants(self) -> Constants:
        """For the compiler, besides what the product itself is."""
        return {"TOKENS": self.tokens, "STAGES": self.stages}

    @property
    def num_threads(self) -> int:
        """Of a thread block: two warpgroups that multiply, one that fetches."""
        return _NUM_THREADS

    def shared_bytes(self, paired: bool) -> int:
        """Size of `Shared` in kernels/products/stream_k_linear.cu."""
        return self.stages * _stage_bytes(self.tokens) + _result_bytes(self.tokens, paired)


@cache
def plan_stream_k(
    in_features: int,
    out_features: int,
    num_tokens: int,
    paired: bool,
    num_multiprocessors: int,
    shared_limit: int,
) -> StreamKPlan | None:
    """Tiles and stages of a product; None where the kernel cannot do it.

    Args:
        in_features: the inner dimension.
        out_features: columns of the output.
        num_tokens: of the launch.
        paired: whether the weight has a gate and a value for each column.
        num_multiprocessors: of the GPU.
        shared_limit: bytes of shared memory that a thread block can have.
    """
    if not 1 <= num_tokens <= MAX_TOKENS or in_features % CHUNK or out_features % PIECE:
        return None
    tokens = TOKEN_COUNTS[bisect_left(TOKEN_COUNTS, num_tokens)]
    stages = (shared_limit - _result_bytes(tokens, paired)) // _stage_bytes(tokens)
    if stages < _FEWEST_STAGES:
        return None
    tiles = -(-out_features // (ROWS // (1 + paired)))
    parts = min(_MOST_PARTS, in_features // CHUNK)
    return StreamKPlan(tokens, stages, min(num_multiprocessors, tiles * parts))


def _stage_bytes(tokens: int) -> int:
    return 2 * CHUNK * (tokens + ROWS) + _BARRIER_BYTES


def _result_bytes(tokens: int, paired: bool) -> int:
    return 2 * tokens * (ROWS // (1 + paired) + PIECE) + _NUMBER_BYTES
