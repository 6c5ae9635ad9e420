"""How a product of 9 rows and more is cut for clusters of Hopper's multiprocessors. Arithmetic only."""

from dataclasses import dataclass

from pagedchat.jit.kernel_file import Constants

CHUNK = 64
"""Inner elements that are multiplied at a time, as in kernels/products/cluster_linear.cu."""
_GROUP_ROWS = 64
"""Of the weight, of a tile, for each warpgroup that multiplies."""
PIECE = 8
"""What widths are a multiple of: 16 bytes."""
_GROUP_THREADS, _FETCHING_THREADS = 128, 32
_STAGE_BARRIERS = 16
"""Bytes."""


@dataclass(frozen=True, slots=True)
class ClusterPlan:
    """Constants of a variant."""

    tokens: int
    """Of a tile, padding included."""
    warpgroups: int
    """That multiply, of a thread block."""
    slices: int
    """Thread blocks that share a tile's inner elements."""
    sharers: int
    """Tiles for which tokens are fetched together."""
    stages: int
    """Chunks in shared memory at a time."""
    blocks: int
    """Thread blocks for which a multiprocessor has registers."""
    hint: int = 0
    ahead: int = 0

    @property
    def constants(self) -> Constants:
        """For the compiler, besides what the product itself is."""
        return {
            "TOKENS": self.tokens,
            "WARPGROUPS": self.warpgroups,
            "HINT": self.hint,
            "AHEAD": self.ahead,
            "SLICES": self.slices,
            "SHARERS": self.sharers,
            "STAGES": self.stages,
            "BLOCKS": self.blocks,
        }

    @property
    def num_threads(self) -> int:
        """Of a thread block: those that multiply, a warp that fetches."""
        return _GROUP_THREADS * self.warpgroups + _FETCHING_THREADS

    @property
    def rows(self) -> int:
        """Of the weight, of a tile."""
        return _GROUP_ROWS * self.warpgroups

    @property
    def shared_bytes(self) -> int:
        """Size of `Shared` in kernels/products/cluster_linear.cu."""
        return self.stages * (stage_bytes(self.tokens, self.rows) + _STAGE_BARRIERS) + 8

    def grid(self, out_features: int, num_tokens: int, paired: bool) -> tuple[int, int]:
        """Of a launch: clusters of tiles of the weight, tiles of tokens."""
        tiles = -(-out_features // (self.rows // (1 + paired)))
        clusters = -(-tiles // self.sharers)
        return clusters * self.sharers * self.slices, -(-num_tokens // self.tokens)


def stage_bytes(tokens: int, rows: int) -> int:
    """Of a chunk in shared memory."""
    return 2 * CHUNK * (tokens + rows)
