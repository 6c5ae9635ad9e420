"""How a large weight streams through shared memory, and which products do it that way. Arithmetic only."""

from dataclasses import dataclass
from functools import cache

from pagedchat.jit.kernel_file import Constants
from pagedchat.ops.products.small_batch_plan import PIECE, STEP

UNIT = 8
"""Rows of the weight that a thread block makes at a time, as in kernels/products/streamed_product.cuh."""
MAX_TOKENS = 8
"""Of a launch; from there on the input takes the registers."""
LEAST_FEATURES = 2048
LEAST_BYTES = 8 << 20
"""Of rows and of a weight; what is smaller is quick in registers (kernels/products/small_batch_product.cuh)."""
RING_BYTES = 171 << 10
"""Of a ring, at most. On an H200 137 to 188 KB are about equal, 100 KB take 8 % more time with a row, 27 with 8."""
_NUM_WARPS = 8
_STAGE_FEATURES = (1024, 768, 512)
"""Inner elements of a stage; the first one that divides a row. With less a warp would have too much to copy."""
_MOST_RESIDENT, _MOST_NORMED = 16, 8
"""Steps of a warp, times tiles of tokens, up to which the input stays in registers; of one that is normed."""
_GAP_BYTES = 64
_SLACK_BYTES = 512
"""What alignment takes, and what some kernels have besides."""


@dataclass(frozen=True, slots=True)
class StreamPlan:
    """Constants of a variant."""

    num_warps: int
    """That multiply; one more copies."""
    token_tiles: int
    """Of 8 tokens."""
    stage_features: int
    """Inner elements of a stage of the ring, which has 8 rows."""
    stages: int

    @property
    def num_threads(self) -> int:
        """Of a thread block."""
        return 32 * (self.num_warps + 1)

    @property
    def stage_bytes(self) -> int:
        """Of shared memory."""
        return UNIT * (2 * self.stage_features + _GAP_BYTES)

    @property
    def constants(self) -> Constants:
        """For the compiler, besides what the product itself is."""
        return {
            "NUM_WARPS": self.num_warps,
            "TOKEN_TILES": self.token_tiles,
            "STAGE_FEATURES": self.stage_features,
            "STAGES": self.stages,
        }

    def shared_bytes(self, in_features: int, normed: bool) -> int:
        """Size of `StreamShared` in kernels/products/streamed_product.cuh, at least."""
        tokens = PIECE * self.token_tiles
        group = 1 if _is_resident(in_features, self.num_warps, self.token_tiles) else 2
        sums = 4 * 2 * self.num_warps * group * tokens * UNIT
        norm = (8 * tokens + 16 * 32) * self.num_warps if normed else 0
        return self.stages * (self.stage_bytes + 16) + sums + norm + _SLACK_BYTES


@cache
def plan_stream(
    in_features: int,
    num_rows: int,
    num_tokens: int,
    *,
    normed: bool,
    num_multiprocessors: int,
    shared_limit: int,
) -> StreamPlan | None:
    """A ring for a weight; None where the kernel cannot do the product, or another one is as fast.

    Args:
        in_features: the inner dimension.
        num_rows: of the weight.
        num_tokens: of the launch.
        normed: whether the input is normed on its way in.
        num_multiprocessors: of the GPU.
        shared_limit: bytes of shared memory that a thread block may have.
    """
    if not 1 <= num_tokens <= MAX_TOKENS:
        return None
    if in_features < LEAST_FEATURES or 2 * num_rows * in_features < LEAST_BYTES:
        return None
    features = next((size for size in _STAGE_FEATURES if in_features % size == 0), None)
    tiles = -(-num_tokens // PIECE)
    if features is None or (normed and in_features // (_NUM_WARPS * STEP) > _MOST_NORMED):
        return None
    if tiles > 1 and not _is_resident(in_features, _NUM_WARPS, tiles):
        return None
    units = -(-num_rows // (UNIT * num_multiprocessors))
    most = RING_BYTES // StreamPlan(_NUM_WARPS, tiles, features, 1).stage_bytes
    plan = StreamPlan(_NUM_WARPS, tiles, features, min(most, units * in_features // features))
    return plan if plan.shared_bytes(in_features, normed) <= shared_limit else None


def _is_resident(in_features: int, num_warps: int, token_tiles: int) -> bool:
    """Whether a warp's part of the input stays in registers."""
    return in_features // (num_warps * STEP) * token_tiles <= _MOST_RESIDENT
