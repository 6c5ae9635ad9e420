"""How a product over more than 64 rows is cut into tiles for clusters of Hopper's multiprocessors. Arithmetic only."""

from dataclasses import dataclass

from pagedchat.jit.kernel_file import Constants

CHUNK = 64
"""Inner elements that are fetched and multiplied at a time, as in kernels/products/wide_linear.cu."""
_NUM_THREADS = 384
_NUMBER_BYTES = 16
"""A cluster's number, and what alignment takes."""
_SHARED_NOTHING, _SHARED_WEIGHTS, _SHARED_TOKENS = 0, 1, 2


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
        return self.stages * stage_bytes(self.tokens, self.sums) + _NUMBER_BYTES

    @property
    def left_bytes(self) -> int:
        """Of sums that thread blocks leave for others."""
        return 4 * self.num_blocks * self.tokens * self.sums if self.streamed else 0


def stage_bytes(tokens: int, sums: int) -> int:
    """Of a chunk in shared memory, barriers included."""
    return 2 * CHUNK * (tokens + sums) + 16
