"""How a product of 9 rows and more is cut for clusters of Hopper's multiprocessors. Arithmetic only."""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache

from pagedchat.jit.kernel_file import Constants

MAX_TOKENS = 256
"""Of a launch."""
CHUNK = 64
"""Inner elements that are multiplied at a time, as in kernels/products/cluster_linear.cu."""
PIECE = 8
"""What widths are a multiple of: 16 bytes."""
_GROUP_ROWS = 64
"""Of the weight, of a tile, for each warpgroup that multiplies."""
_GROUP_THREADS, _GROUP_WARPS, _FETCHING_THREADS = 128, 4, 32
_STAGE_BARRIERS = 24
"""Bytes, those of norms included."""
_SUMS_BYTES = 512
"""Of eight tokens that a warp multiplies."""
_RESERVED = 1 << 10
"""Bytes of shared memory that each thread block costs a multiprocessor besides its own."""
_REGISTERS, _OTHER_REGISTERS = 1 << 16, 40
"""Of a multiprocessor, and those that a thread needs besides sums."""

_TOKENS = (16, 32, 64, 128, 256)
_WARPGROUPS = (1, 2)
_SLICES, _SHARERS, _LARGEST_CLUSTER = (1, 2, 4, 8), (1, 2, 4), 8
_FEWEST_STAGES, _MOST_STAGES = 2, 12


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
            own += 4 * self.tokens + 2 * CHUNK * -(-_chunks(normed_features) // self.slices)
        return -(-own // 16) * 16

    def grid(self, out_features: int, num_tokens: int, paired: bool) -> tuple[int, int]:
        """Of a launch: clusters of tiles of the weight, tiles of tokens."""
        tiles = -(-out_features // (self.rows // (1 + paired)))
        clusters = -(-tiles // self.sharers)
        return clusters * self.sharers * self.slices, -(-num_tokens // self.tokens)

    def num_square_parts(self, out_features: int) -> int:
        """Into how many parts the squares of a row of the output fall."""
        warps = _GROUP_WARPS * self.warpgroups
        return self.grid(out_features, 1, False)[0] // self.slices * (warps // min(warps, self._own_strips))

    def can_norm(self, in_features: int, shared_limit: int) -> bool:
        """Whether there is room for the norm of a row, and registers for those who norm."""
        registers = _REGISTERS // (self.num_threads(normed=True) * self.blocks)
        room = (shared_limit + _RESERVED) // self.blocks - _RESERVED
        return self.shared_bytes(in_features) <= room and registers >= self.tokens // 2 + _OTHER_REGISTERS

    @property
    def _own_strips(self) -> int:
        """That a thread block finishes, as in the kernel."""
        return self.tokens // 8 * _GROUP_WARPS * self.warpgroups // self.slices

    def is_whole(self, paired: bool) -> bool:
        """Whether the kernel can be cut like this."""
        warps = _GROUP_WARPS * self.warpgroups
        own = self._own_strips
        sums = self.tokens // 8 * warps * _SUMS_BYTES
        room = self.slices == 1 or self.stages * stage_bytes(self.tokens, self.rows) >= sums
        whole = (own % warps == 0 or (own > 0 and warps % own == 0)) and (not paired or own % 2 == 0)
        return whole and room and self.tokens % (8 * self.sharers) == 0


def stage_bytes(tokens: int, rows: int) -> int:
    """Of a chunk in shared memory."""
    return 2 * CHUNK * (tokens + rows)


def _chunks(in_features: int) -> int:
    return -(-in_features // CHUNK)
