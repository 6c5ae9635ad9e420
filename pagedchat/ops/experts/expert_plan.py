"""How the products of a mixture of experts are cut into tiles of pairs, and which kernel makes them.

Arithmetic only. A pair is a token and one of its experts; those of a tile have the expert in common.
"""

from dataclasses import dataclass
from functools import cache
from typing import Literal

from pagedchat.jit.kernel_file import Constants
from pagedchat.ops.experts.few_bits_tiles import AVERAGES, tile_rows_for
from pagedchat.ops.products.small_batch_plan import PIECE, TILE_ROWS, ProductPlan, plan_product

MOST_EXPERTS = 1024
"""Of a mixture, as in kernels/experts/group_pairs.cu."""
MOST_PER_TOKEN = 32
"""Of a token, as in kernels/experts/route_tokens.cu."""
MOST_FEW_PAIRS = 512
"""That are routed and grouped in one launch, as in kernels/experts/route_few.cu."""
LOOP_ROWS = 8
"""Pairs of a tile on CUDA cores, as in kernels/experts/expert_simt.cu."""
IN_REGISTERS = ((1, 8),)
"""Pairs that an expert has on average, up to which tiles of so many meet weights in registers. At 2 pairs they took
276 us and tiles of 32 took 259 (Qwen3-30B-A3B's shape; Mixtral's 696 and 628), at 1 pair 199 and 189 (526 and 532).
All figures here are in bfloat16 on one H200, see docs/figures.md. Tiles of 16 and 32 pairs in registers were never
the quickest."""
_NARROW, _MOST_OF_NARROW = 1024, 0.1
"""The same of experts that are narrower in the middle: with 768 (Qwen3-30B-A3B) one token took 27 us in registers
and 30 in tiles of 32, two 54 and 51, eight 148 and 135; with 1,024 (OLMoE) two 55 and 60, four 98 and 112; with
14,336 (Mixtral) two 288 and 349."""
_LONG_ROW, _WHOLE_ROUND = 2048, 1024
"""Rows of the input that are longer and no whole rounds of eight or sixteen warps are in tiles at any number: with
2,880 both ways (gpt-oss) one token took 75 us in registers and 74 in tiles of 32, two 145 and 120, eight 401 and
293, with 2,816 65 and 62, 112 and 107, 303 and 275. With 3,072 one took 38 and 43."""
FEWEST_TILED, FEWEST_TILED_ROWS = 24, 32
"""The same for tiles of so many: at 16 pairs 306 us, where tiles of 64 took 319 (701 and 737), at 32 pairs 348 and
335 (839 and 757)."""
FEW_TILED, TILED_ROWS = 224, 64
"""The same for these; from there on they are twice as large."""
FROM_WARPGROUPS = 64
"""Pairs that an expert has on average, from which on warpgroups multiply where a GPU has them: at 64 pairs 398 us,
where tiles of 64 took 430 (747 and 986), at 32 pairs 363 and 335 (729 and 757). Torch's grouped product was behind
them from 32 to 256 pairs: 467 to 1,032 us against 363 to 891 (976 to 1,727 against 729 to 1,720)."""
WARPGROUP_ROWS, WARPGROUP_WEIGHTS = 128, 256
"""Pairs and rows of the weights of a tile, as in kernels/experts/expert_warpgroups.cu."""
TILE_WEIGHTS = 128
"""Rows of the weights of a tile, as in kernels/experts/expert_tiles.cu."""
_CHUNK_BYTES, _STAGES, _FEWEST_STAGES = 128, 3, 2
_STATIC_BYTES = 1024

Way = Literal["torch", "registers", "tiles", "cuda cores", "warpgroups", "few bits"]


@dataclass(frozen=True, slots=True)
class ExpertPlan:
    """Of both products of a mixture, for a number of pairs."""

    way: Way
    tile_rows: int
    """Pairs of a tile, at most."""
    batch_invariant: bool = False
    """By torch no pair's numbers depend on what other pairs there are. Those of one kernel never do."""

    def num_tiles(self, num_pairs: int, num_experts: int) -> int:
        """As many as there can be: each expert's last tile may have one pair alone."""
        return (num_pairs + min(num_pairs, num_experts) * (self.tile_rows - 1)) // self.tile_rows


@dataclass(frozen=True, slots=True)
class TiledPlan:
    """Constants of kernels/experts/expert_tiles.cu."""

    tile_rows: int
    num_stages: int

    @property
    def num_threads(self) -> int:
        """Of a thread block."""
        return 2 * self.tile_rows

    @property
    def shared_bytes(self) -> int:
        """Dynamic."""
        return self.num_stages * (self.tile_rows + TILE_WEIGHTS) * _CHUNK_BYTES

    def fits(self, shared_limit: int) -> bool:
        """Whether a thread block that can have so many bytes of shared memory has them."""
        return self.shared_bytes + _STATIC_BYTES <= shared_limit

    @property
    def constants(self) -> Constants:
        """For the compiler, besides what the product itself is."""
        return {"TILE_ROWS": self.tile_rows, "STAGES": self.num_stages}


@dataclass(frozen=True, slots=True)
class WarpgroupsPlan:
    """Constants of kernels/experts/expert_warpgroups.cu."""

    num_stages: int = 4

    @property
    def num_threads(self) -> int:
        """Of a thread block: two warpgroups multiply, one fetches."""
        return 3 * 128

    @property
    def shared_bytes(self) -> int:
        """Dynamic, barriers too."""
        return self.num_stages * ((WARPGROUP_ROWS + WARPGROUP_WEIGHTS) * _CHUNK_BYTES + 16)

    @property
    def constants(self) -> Constants:
        """For the compiler, besides what the product itself is."""
        return {"STAGES": self.num_stages}


@cache
def plan_experts(
    hidden: int,
    width: int,
    num_pairs: int,
    num_experts: int,
    *,
    tensor_cores: bool,
    shared_limit: int,
    warpgroups: bool = False,
    batch_invariant: bool = False,
) -> ExpertPlan:
    """The quickest way that there is on a GPU.

    A kernel adds up in an order that follows from the width of the rows alone, in tiles of any size by the sixteen,
    first to last. So where no pair may depend on others it is always the same kernel.

    Args:
        hidden: width of the rows.
        width: of the middle of an expert.
        num_pairs: of a launch.
        num_experts: of the mixture.
        tensor_cores: whether the GPU multiplies the type on them.
        shared_limit: bytes of shared memory that a thread block can have.
        warpgroups: whether the GPU multiplies the type by warpgroups.
        batch_invariant: whether the numbers of a pair are to be the same for any number of pairs.
    """
    if not tensor_cores or hidden % PIECE or width % PIECE:
        return ExpertPlan("cuda cores", LOOP_ROWS)
    average = num_pairs / num_experts
    for most, rows in IN_REGISTERS:
        limit = min(most, _MOST_OF_NARROW) if width < _NARROW else most
        if not batch_invariant and average <= limit and _fits_registers(hidden, width, rows):
            return ExpertPlan("registers", rows)
    if average <= FEWEST_TILED:
        return ExpertPlan("tiles", FEWEST_TILED_ROWS)
    if warpgroups and not batch_invariant and average >= FROM_WARPGROUPS:
        return ExpertPlan("warpgroups", WARPGROUP_ROWS)
    large = average > FEW_TILED and TiledPlan(2 * TILED_ROWS, _FEWEST_STAGES).fits(shared_limit)
    return ExpertPlan("tiles", 2 * TILED_ROWS if large else TILED_ROWS)


def plan_few_bits_experts(num_pairs: int, num_experts: int) -> ExpertPlan:
    """The same where weights have few bits, in a form that kernels take: always one kernel, in whose numbers for a
    pair no other has a part."""
    return ExpertPlan("few bits", tile_rows_for(num_pairs, num_experts))


def distinct_pairs(num_experts: int, *, few_bits: bool = False) -> list[int]:
    """Numbers of pairs, one at least for each kind of launches that there is, if what is multiplied allows it.

    Args:
        num_experts: of the mixture.
        few_bits: whether its weights have few bits.
    """
    averages = (*(most for most, _ in IN_REGISTERS), FEWEST_TILED, FROM_WARPGROUPS - 1, FEW_TILED)
    averages = AVERAGES if few_bits else averages
    largest = averages[-1] * num_experts + MOST_PER_TOKEN
    return sorted({1, MOST_FEW_PAIRS + MOST_PER_TOKEN, *(most * num_experts for most in averages), largest})


def plan_registers(in_features: int, tile_rows: int) -> ProductPlan:
    """Of one product whose weights are in registers, which `plan_experts` has found to fit."""
    plan = plan_product(in_features, tile_rows, False)
    if plan is None:
        raise ValueError(f"{in_features} inner elements do not fit into registers")
    return plan


def plan_tiles(tile_rows: int, shared_limit: int) -> TiledPlan:
    """Of one product in tiles.

    Args:
        tile_rows: as `plan_experts` says.
        shared_limit: bytes of shared memory that a thread block can have.
    """
    plan = TiledPlan(tile_rows, _STAGES)
    return plan if plan.fits(shared_limit) else TiledPlan(tile_rows, _FEWEST_STAGES)


def _fits_registers(hidden: int, width: int, rows: int) -> bool:
    whole = hidden % TILE_ROWS == 0 and width % (TILE_ROWS // 2) == 0
    in_rounds = hidden <= _LONG_ROW or hidden % _WHOLE_ROUND == 0
    return whole and in_rounds and None not in (plan_product(hidden, rows, False), plan_product(width, rows, False))
