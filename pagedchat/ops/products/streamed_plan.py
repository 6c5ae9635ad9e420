"""How a weight streams through shared memory. Arithmetic only."""

from dataclasses import dataclass, replace
from functools import cache

from pagedchat.jit.kernel_file import Constants
from pagedchat.ops.products.small_batch_plan import PIECE, STEP
from pagedchat.ops.quantized.weight_form import WHOLE, WeightForm

UNIT = 8
"""Rows of the weight that a thread block makes at a time, as in kernels/products/streamed_product.cuh."""
MAX_TOKENS = 8
"""Of a launch; from there on the input takes the registers."""
RING_BYTES, LARGE_RING_BYTES = 120 << 10, 171 << 10
"""Of a ring, at most; of one for a weight both of whose sides are `_LARGE`. What a ring leaves others may have."""
FEW_BITS_RING_BYTES, PAIRS_RING_BYTES = 100 << 10, 140 << 10
"""The same of weights of few bits, whose units are made one by one or in pairs."""
_LARGE = 4096
_NUM_WARPS = 8
_ROUND = _NUM_WARPS * STEP
"""Inner elements of which every warp has whole steps."""
_STAGE_FEATURES = 1024
"""Inner elements of a stage, at most. With fewer there is too much to copy, more leave a ring too few stages."""
_FEW_BITS_ROW_BYTES, _FEW_BITS_PASSING = 2048, 2048
"""The same of weights of few bits: bytes of a row of a stage, so that there are as many copies, and inner elements
where the input does not stay in registers."""
_IN_FLIGHT_BYTES, _FEWEST_IN_FLIGHT = 36 << 10, 2
"""Of few bits that are asked for and have not come, at most, and stages: with more on their way the memory
gives less. What else the ring has is for weights that wait for their input."""
_LARGE_IN_FLIGHT, _LARGE_IN_FLIGHT_BYTES = 3, 42 << 10
"""Stages of 16 bits likewise and their bytes, at least, in a large ring or of a vocabulary; in others it was not
measured."""
_VOCABULARY = 50_000
"""Rows of a weight that is taken for one, at least."""
_MOST_PARTS = 4
"""Of a warp's elements of a stage that have scales of their own, which it has in registers beside the input."""
_FEWEST_STAGES = 3
_MOST_RESIDENT = 16
"""Steps of a warp up to which the input stays in registers, as one that is normed has to."""
_MOST_GROUP = 4
"""Units that read an input together which does not stay in registers; of few bits, that end their sums together."""
_PAIR = 2
"""The same where units are made in pairs."""
_PAIRED_BITS, MOST_SHARED = 4, 1
"""Of weights whose units are made in pairs, and of how many tokens, at most: their input lies in shared memory."""
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
    form: WeightForm = WHOLE
    shared_tokens: int = 0
    """Tokens whose input lies in shared memory, at most; 0: in registers, up to `MAX_TOKENS`."""
    is_vocabulary: bool = False
    """Whether the weight has so many rows that the memory's speed is all that counts."""

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
            **({"SHARED_TOKENS": self.shared_tokens} if self.shared_tokens else {}),
            **({"IN_FLIGHT": self.in_flight} if self.in_flight < self.stages else {}),
            **self.form.constants,
        }

    @property
    def in_flight(self) -> int:
        """Stages that are asked for and have not come, at most."""
        if self.form.few:
            return min(self.stages, max(_FEWEST_IN_FLIGHT, _IN_FLIGHT_BYTES // self.stage_bytes))
        large = self.is_vocabulary or self.stages * self.stage_bytes > RING_BYTES
        if not large:
            return self.stages
        return min(self.stages, max(_LARGE_IN_FLIGHT, -(-_LARGE_IN_FLIGHT_BYTES // self.stage_bytes)))

    @property
    def lane_run(self) -> int:
        """Inner elements that lie together for a lane: 16 bytes of few bits where four lanes are in one group."""
        if not self.shared_tokens:
            return PIECE
        segment, run = self.stage_features // _NUM_WARPS, 128 // self.form.bits
        while segment % (4 * run) or self.form.scale_group % (4 * run):
            run //= 2
        return run

    @property
    def input_bytes(self) -> int:
        """Of the input that lies in shared memory, and of its sums over parts of a stage."""
        segment = self.stage_features // _NUM_WARPS
        parts = segment // min(self.form.scale_group or segment, segment)
        sums = _NUM_WARPS * parts * self.row_stages * 8
        return self.shared_tokens * (sums + 2 * self.row_stages * self.stage_features + _GAP_BYTES)

    @property
    def room(self) -> int:
        """Tokens that there can be."""
        return self.shared_tokens or MAX_TOKENS

    @property
    def resident(self) -> bool:
        """Whether registers have room for the input."""
        return self.row_stages * self.stage_features <= _MOST_RESIDENT * _ROUND

    @property
    def stage_bytes(self) -> int:
        """Of shared memory, for each stage."""
        row = (self.in_features if self.row_stages == 1 else self.stage_features) * self.form.bits // 8
        if self.form.few:
            runs = 4 * self.lane_run * self.form.bits // 8  # of four lanes, an odd number of times
            row = (-(-row // runs) | 1) * runs
        elif self.row_stages > 1:
            row += _GAP_BYTES
        return UNIT * row + 16

    @property
    def scale_bytes(self) -> int:
        """Of scales and minimums that are there besides: of as many units as a ring can be at."""
        if not self.form.scale_group:
            return 0
        places = self.group * (1 + -(-self.stages // (self.group * self.row_stages)))
        return 2 * places * (1 + self.form.has_minimums) * UNIT * self.form.num_groups(self.in_features)

    def shared_bytes(self, normed: bool) -> int:
        """Size of `StreamShared` in kernels/products/streamed_ring.cuh, at least."""
        sums = 4 * 2 * _NUM_WARPS * self.group * self.room * UNIT
        norm = 2 * 2 * self.in_features + (8 * PIECE + 16 * 32) * _NUM_WARPS if normed else 0
        return self.stages * self.stage_bytes + self.scale_bytes + self.input_bytes + sums + norm + _SLACK_BYTES


@cache
def plan_stream(
    in_features: int,
    num_rows: int,
    num_tokens: int,
    *,
    normed: bool,
    num_multiprocessors: int,
    shared_limit: int,
    form: WeightForm = WHOLE,
) -> StreamPlan | None:
    """A ring for a weight; None where the kernel cannot do the product.

    Args:
        in_features: the inner dimension.
        num_rows: of the weight.
        num_tokens: of the launch.
        normed: whether the input is normed on its way in.
        num_multiprocessors: of the GPU.
        shared_limit: bytes of shared memory that a thread block may have.
        form: of the weight.
    """
    if not 1 <= num_tokens <= MAX_TOKENS or in_features % PIECE:
        return None
    if form.few and not takes(form, in_features, num_rows):
        return None
    units = -(-num_rows // (UNIT * num_multiprocessors))
    if form.bits == _PAIRED_BITS and num_tokens <= MOST_SHARED:
        features = _fewest_stages(in_features, form, 8 * _FEW_BITS_ROW_BYTES // form.bits)
        pairs = StreamPlan(in_features, features, 0, _PAIR, form, num_tokens)
        plan = _with_stages(pairs, units, normed, PAIRS_RING_BYTES, shared_limit)
        if plan is not None:
            return plan
    bare = StreamPlan(
        in_features, _stage_features(in_features, form), 0, form=form, is_vocabulary=num_rows >= _VOCABULARY
    )
    if normed and not bare.resident:
        return None
    group = 1 if bare.resident and not form.few else -(-units // -(-units // _MOST_GROUP))
    most = LARGE_RING_BYTES if min(in_features, num_rows) >= _LARGE else RING_BYTES
    most = FEW_BITS_RING_BYTES if form.few else most
    return _with_stages(replace(bare, group=group), units, normed, most, shared_limit)


def _with_stages(plan: StreamPlan, units: int, normed: bool, most: int, shared_limit: int) -> StreamPlan | None:
    """As many as there is room for; None where they are too few."""
    plan = replace(plan, stages=min(most // plan.stage_bytes, units * plan.row_stages))
    while plan.stages > 0 and plan.shared_bytes(normed) > shared_limit:
        plan = replace(plan, stages=plan.stages - 1)
    return plan if plan.stages >= min(_FEWEST_STAGES, units * plan.row_stages) else None


def takes(form: WeightForm, in_features: int, num_rows: int) -> bool:
    """Whether a kernel reads weights of this form and these sizes: copies begin at 16 bytes."""
    if in_features % STEP or form.scale_group % STEP:
        return False
    groups = form.num_groups(in_features)
    if not form.scale_group:
        return not form.has_minimums
    return in_features % form.scale_group == 0 and groups % 2 == 0 and groups * num_rows % PIECE == 0


def _stage_features(in_features: int, form: WeightForm) -> int:
    """Inner elements of a stage."""
    if not form.few:
        return min(_STAGE_FEATURES, -(-in_features // _ROUND) * _ROUND)
    features = _fewest_stages(in_features, form, 8 * _FEW_BITS_ROW_BYTES // form.bits)
    if -(-in_features // features) * features <= _MOST_RESIDENT * _ROUND:
        return features
    return _fewest_stages(in_features, form, _FEW_BITS_PASSING)


def _fewest_stages(in_features: int, form: WeightForm, most: int) -> int:
    """Of few bits: so that a row has as few stages as can be, no longer than they have to be, and each warp whole
    groups of a stage, or a part of one, and none beyond the end of a row."""

    def fits(features: int) -> bool:
        segment, group = features // _NUM_WARPS, form.scale_group
        parts = segment // group if group else 1
        if group and (in_features % segment or (group % segment and segment % group)):
            return False
        return parts <= _MOST_PARTS

    candidates = [features for features in range(_ROUND, most + 1, _ROUND) if fits(features)]
    return min(candidates, key=lambda features: (-(-in_features // features), features))
