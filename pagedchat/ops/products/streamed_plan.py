"""How a weight streams through shared memory. Arithmetic only."""

from dataclasses import dataclass
from functools import cache

from pagedchat.jit.kernel_file import Constants
from pagedchat.ops.products.small_batch_plan import PIECE, STEP

UNIT = 8
"""Rows of the weight that a thread block makes at a time, as in kernels/products/streamed_product.cuh."""
MAX_TOKENS = 8
"""Of a launch; from there on the input takes the registers."""
RING_BYTES, LARGE_RING_BYTES = 120 << 10, 171 << 10
"""Of a ring, at most; of one for a weight both of whose sides are `_LARGE`. What a ring leaves others may have."""
_LARGE = 4096
_NUM_WARPS = 8
_ROUND = _NUM_WARPS * STEP
"""Inner elements of which every warp has whole steps."""
_STAGE_FEATURES = 1024
"""Inner elements of a stage, at most. With fewer there is too much to copy, more leave a ring too few stages."""
_FEWEST_STAGES = 3
_MOST_RESIDENT = 16
"""Steps of a warp up to which the input stays in registers, as one that is normed has to."""
_MOST_GROUP = 4
"""Units that read an input together which does not stay in registers."""
_GAP_BYTES = 64
_SLACK_BYTES = 512
"""What alignment takes, and what some kernels have besides."""


@dataclass(frozen=True, slots=True)
class StreamPlan:
    """Constants of a variant."""

    in_features: int
    """Of the product: what the others are for."""
    stage_features: int
    """Inner elements of a stage of the ring, which has 8 rows; the last stage of a row may be short."""
    stages: int
    group: int = 1
    """Units that are made at a time."""

    @property
    def num_threads(self) -> int:
        """Of a thread block: warps that multiply, and one that copies."""
        return 32 * (_NUM_WARPS + 1)

    @property
    def row_stages(self) -> int:
        """Of a row."""
        return -(-self.in_features // self.stage_features)

    @property
    def constants(self) -> Constants:
        """For the compiler, besides what the product itself is."""
        return {
            "NUM_WARPS": _NUM_WARPS,
            "STAGE_FEATURES": self.stage_features,
            "STAGES": self.stages,
            "GROUP": self.group,
        }

    @property
    def stage_bytes(self) -> int:
        """Of shared memory, for each stage."""
        row = 2 * self.in_features if self.row_stages == 1 else 2 * self.stage_features + _GAP_BYTES
        return UNIT * row + 16

    def shared_bytes(self, normed: bool) -> int:
        """Size of `StreamShared` in kernels/products/streamed_ring.cuh, at least."""
        sums = 4 * 2 * _NUM_WARPS * self.group * PIECE * UNIT
        norm = 2 * 2 * self.in_features + (8 * PIECE + 16 * 32) * _NUM_WARPS if normed else 0
        return self.stages * self.stage_bytes + sums + norm + _SLACK_BYTES


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
    """A ring for a weight; None where the kernel cannot do the product.

    Args:
        in_features: the inner dimension.
        num_rows: of the weight.
        num_tokens: of the launch.
        normed: whether the input is normed on its way in.
        num_multiprocessors: of the GPU.
        shared_limit: bytes of shared memory that a thread block may have.
    """
    if not 1 <= num_tokens <= MAX_TOKENS or in_features % PIECE:
        return None
    features = min(_STAGE_FEATURES, -(-in_features // _ROUND) * _ROUND)
    bare = StreamPlan(in_features, features, 0)
    resident = bare.row_stages * features <= _MOST_RESIDENT * _ROUND
    if normed and not resident:
        return None
    units = -(-num_rows // (UNIT * num_multiprocessors))
    group = 1 if resident else -(-units // -(-units // _MOST_GROUP))
    bare = StreamPlan(in_features, features, 0, group)
    most = LARGE_RING_BYTES if min(in_features, num_rows) >= _LARGE else RING_BYTES
    stages = min(most, shared_limit - bare.shared_bytes(normed)) // bare.stage_bytes
    if stages < _FEWEST_STAGES:
        return None
    return StreamPlan(in_features, features, min(stages, units * bare.row_stages), group)
