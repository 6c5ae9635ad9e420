"""How a product of 9 rows and more is cut for clusters of Hopper's multiprocessors. Arithmetic only."""

from dataclasses import dataclass

from pagedchat.jit.kernel_file import Constants

MAX_TOKENS = 256
"""Of a launch."""
CHUNK = 64
"""Inner elements that are multiplied at a time, as in kernels/clusters/cluster_linear.cu."""
_GROUP_ROWS = 64
"""Of the weight, of a tile, for each warpgroup that multiplies."""
_GROUP_THREADS, _GROUP_WARPS, _FETCHING_THREADS = 128, 4, 32
_STAGE_BARRIERS = 24
"""Bytes, those of norms included."""
_RESERVED = 1 << 10
"""Bytes of shared memory that each thread block costs a multiprocessor besides its own."""
_REGISTERS, _OTHER_REGISTERS = 1 << 16, 40
"""Of a multiprocessor, and those that a thread needs besides sums."""


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
    """1: weights are marked as read once."""
    ahead: int = 0
    """Chunks behind those of the ring that are brought into the L2 cache while the kernel before runs."""

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
        """Size of `Shared` in the kernel, and of what a norm takes of that many features."""
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


def stage_bytes(tokens: int, rows: int) -> int:
    """Of a chunk in shared memory."""
    return 2 * CHUNK * (tokens + rows)


def _chunks(in_features: int) -> int:
    return -(-in_features // CHUNK)
