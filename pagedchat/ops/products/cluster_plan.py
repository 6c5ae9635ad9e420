"""How a product of 9 rows and more is cut for clusters of Hopper's multiprocessors. Arithmetic only."""

from dataclasses import dataclass

from pagedchat.jit.kernel_file import Constants

MAX_TOKENS = 256
"""Of a launch."""
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
    def rows(self) -> int:
        """Of the weight, of a tile."""
        return _GROUP_ROWS * self.warpgroups

    def num_threads(self, normed: bool) -> int:
        """Of a thread block: those that multiply, a warp that fetches, a warpgroup that norms tokens."""
        return _GROUP_THREADS * (self.warpgroups + normed) + _FETCHING_THREADS

    def shared_bytes(self, normed_features: int = 0) -> int:
        """Size of `Shared` in kernels/products/cluster_linear.cu, and of what a norm takes of that many features."""
        own = self.stages * (stage_bytes(self.tokens, self.rows) + _STAGE_BARRIERS) + 8
        if normed_features:
            chunks = -(-(-(-normed_features // CHUNK)) // self.slices)
            own += 8 * self.stages + 4 * self.tokens + 2 * CHUNK * chunks
        return -(-own // 16) * 16

    def num_square_parts(self, out_features: int) -> int:
        """Into how many parts the squares of a row of the output fall."""
        warps = 4 * self.warpgroups
        own_strips = self.tokens // 8 * warps // self.slices
        return self.grid(out_features, 1, False)[0] // self.slices * (warps // min(warps, own_strips))

    def grid(self, out_features: int, num_tokens: int, paired: bool) -> tuple[int, int]:
        """Of a launch: clusters of tiles of the weight, tiles of tokens."""
        tiles = -(-out_features // (self.rows // (1 + paired)))
        clusters = -(-tiles // self.sharers)
        return clusters * self.sharers * self.slices, -(-num_tokens // self.tokens)


def stage_bytes(tokens: int, rows: int) -> int:
    """Of a chunk in shared memory."""
    return 2 * CHUNK * (tokens + rows)
