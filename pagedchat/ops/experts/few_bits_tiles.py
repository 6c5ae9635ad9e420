"""How the products of a mixture of experts in few bits are cut into tiles, and what they take. Arithmetic only."""

from dataclasses import dataclass, replace
from functools import cache

from pagedchat.ops.quantized.few_bits_plan import KEPT_BYTES, FewBitsVariant, objection_to_form, stage_bytes
from pagedchat.ops.quantized.weight_form import Kind, WeightForm

_UP_TO = ((2, 8), (8, 16), (32, 32))
"""Pairs that an expert has on average, up to which tiles have so many: see docs/figures.md."""
_LARGEST = 64
"""Pairs of all other tiles."""
TILE_ROWS = (*(rows for _, rows in _UP_TO), _LARGEST)
"""Pairs of a tile, at most, that there are kernels for."""
AVERAGES = tuple(most for most, _ in _UP_TO)
"""Pairs that an expert has on average, up to which it is the same kernel."""
PIECE = 8
"""Columns of a result that are written together, and rows of a weight that are gates or values together."""
_ROW_TILES = 2
"""Of a warp: with one the kernel was slower at nearly every number of pairs, by up to a third."""
_FEW_PAIRS, _OF_FEW_PAIRS, _BLOCKS = 8, {"int4": 3}, 2
"""Thread blocks on a multiprocessor: with tiles of few pairs more of 4 bits, else two. With three, 8 bits took 170
us and not 119 (one token of Mixtral-8x7B), and 19 and not 24 (Qwen3-30B-A3B)."""
_MOST_STAGES, _FEWEST_STAGES = 6, 2
_STATIC_BYTES = 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class FewBitsTiles(FewBitsVariant):
    """A variant of kernels/experts/expert_few_bits.cu, whose tiles have `tokens` pairs each."""

    @property
    def shared_bytes(self) -> int:
        """Dynamic; sums meet where the ring was."""
        stage, sums = stage_bytes(self.kind, False, self.tokens, self.row_tiles)
        return max(self.stages * stage, sums)


def tile_rows_for(num_pairs: int, num_experts: int) -> int:
    """Pairs of a tile, at most, that are the quickest for so many."""
    return next((rows for most, rows in _UP_TO if num_pairs <= most * num_experts), _LARGEST)


@cache
def plan_tiles_of(kind: Kind, tile_rows: int, shared_limit: int) -> FewBitsTiles:
    """For tiles of so many pairs.

    Args:
        kind: of the weight, not whole.
        tile_rows: one of `TILE_ROWS`.
        shared_limit: bytes of shared memory that a thread block can have.
    """
    blocks = _OF_FEW_PAIRS.get(kind, _BLOCKS) if tile_rows <= _FEW_PAIRS else _BLOCKS
    wanted = FewBitsTiles(
        kind=kind, tokens=tile_rows, row_tiles=_ROW_TILES, per_multiprocessor=blocks, stages=_FEWEST_STAGES
    )
    for tiles in (wanted, replace(wanted, per_multiprocessor=1)):
        stage, sums = stage_bytes(kind, False, tile_rows, _ROW_TILES)
        room = (shared_limit + KEPT_BYTES) // tiles.per_multiprocessor - KEPT_BYTES - _STATIC_BYTES
        stages = min(_MOST_STAGES, room // stage)
        if stages >= _FEWEST_STAGES and sums <= room:
            return replace(tiles, stages=stages)
    return replace(wanted, row_tiles=1, per_multiprocessor=1)


def objection_to_experts(form: WeightForm, in_features: int, out_features: int) -> str:
    """What the kernel has against weights of a form, in words that go after "since"; empty if nothing.

    Args:
        form: not whole.
        in_features: elements of a row.
        out_features: of the result: rows of a weight, or pairs of a gate and its value.
    """
    if out_features % PIECE:
        return f"{out_features} columns are no multiple of {PIECE}"
    return objection_to_form(form, in_features)
