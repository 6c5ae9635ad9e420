"""How a product with a weight of few bits is cut for a GPU. Arithmetic only."""

from bisect import bisect_left
from dataclasses import dataclass
from functools import cache

from pagedchat.jit.kernel_file import Constants
from pagedchat.ops.quantized.weight_form import NUMBERS, Kind, WeightForm

MAX_TOKENS = 64
"""Rows of a launch."""
FIRST_GPU = (8, 0)
"""Compute capability from which on the kernels run."""
_PIECE_BITS = 128
"""That a thread reads at a time."""
TOKEN_COUNTS = {False: tuple(range(8, MAX_TOKENS + 1, 8)), True: (16, 32, 48, 64)}
"""That there are launches of, without and with products of warpgroups: one has the next larger number."""
_PIECE_BYTES = 256 << 20
"""Of a weight in 16 bits, at a time. Pieces that stay in the L2 cache were slower: 192 us of 32 MiB,
258 of 16, instead of 163 for 28672 times 4096 elements and 128 rows on one H200."""
_ROW_BYTES = 128
"""Of a row of the weight, of a chunk, as in kernels/quantized/few_bits_linear.cu."""
NUM_THREADS = 256
_TILE_ROWS = 64
"""Of the weight, for each row tile of a warp."""
_MOST_STAGES, _FEWEST_STAGES = 8, 2
KEPT_BYTES = 1024
"""Of shared memory, that a multiprocessor keeps for each thread block."""
_NUMBER_BYTES = 1024
"""A thread block's number, and what alignment takes."""
_INPUT_STAGES = 3
"""Of products of warpgroups, as in kernels/quantized/few_bits_warpgroups.cu."""
_MANY_ELEMENTS = 150_000
"""Of a weight, for each multiprocessor, from which on it is large."""
_FEW_ROWS = {False: 32, True: 16}
"""Of the input, up to which products of warps are as fast as those of warpgroups, with 8 bits and with 4."""
_MANY_CHUNKS = 12
"""Of tiles of 128 rows, for each multiprocessor, from which on two thread blocks there are faster than one."""
_ROWS_OF_TWO_BLOCKS, _ROWS_OF_LARGE_TILES = 32, 8
"""Of the input, up to which two thread blocks have room on a multiprocessor, with tiles of 128 rows and of 256."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FewBitsVariant:
    """Of a kernel with a tile of weights in few bits and a ring of their chunks."""

    kind: Kind
    """Not whole."""
    tokens: int
    """Rows of the input, padding included."""
    row_tiles: int
    """16 rows of the weight each, of a warp."""
    per_multiprocessor: int
    """Thread blocks that run there at the same time."""
    stages: int
    """Chunks in shared memory at a time."""

    @property
    def constants(self) -> Constants:
        """For the compiler, besides the types of elements and scales."""
        return {
            "WEIGHT_KIND": NUMBERS[self.kind],
            "TOKENS": self.tokens,
            "ROW_TILES": self.row_tiles,
            "STAGES": self.stages,
            "BLOCKS": self.per_multiprocessor,
        }

    @property
    def num_threads(self) -> int:
        """Of a thread block."""
        return NUM_THREADS

    @property
    def weight_rows(self) -> int:
        """Of a tile."""
        return self.row_tiles * _TILE_ROWS


@dataclass(frozen=True, slots=True, kw_only=True)
class FewBitsPlan(FewBitsVariant):
    """A launch's variant and grid."""

    warpgroups: bool
    """Whether by Hopper's products of warpgroups."""
    num_blocks: int
    """Thread blocks of the launch."""

    @property
    def shared_bytes(self) -> int:
        """Of a thread block: the size of `Shared`."""
        stage, others = stage_bytes(self.kind, self.warpgroups, self.tokens, self.row_tiles)
        return self.stages * stage + others

    def laid_out(self, in_features: int) -> int:
        """Elements of the input as products of warpgroups take it: whole chunks of as many rows as a launch has."""
        chunk = chunk_of(self.kind)
        return -(-in_features // chunk) * chunk * self.tokens

    @property
    def left_sums(self) -> int:
        """Floats that thread blocks leave for each other."""
        return self.num_blocks * self.tokens * self.weight_rows


def objection_to_form(form: WeightForm, in_features: int) -> str:
    """What the kernels have against weights of a form, in words that go after "since"; empty if nothing."""
    elements = _PIECE_BITS // form.bits
    if in_features % elements:
        return f"rows of {in_features * form.bits // 8} bytes are no multiple of {_PIECE_BITS // 8}"
    if form.scale_group % elements:
        return f"groups of {form.scale_group} are no multiple of {elements}"
    return ""


@cache
def plan_few_bits(
    kind: Kind,
    in_features: int,
    out_features: int,
    num_rows: int,
    num_multiprocessors: int,
    shared_limit: int,
    *,
    warpgroups: bool,
) -> FewBitsPlan | None:
    """How a launch is cut; None where a multiprocessor has no room for it.

    Args:
        kind: not whole.
        in_features: elements of a row of the weight.
        out_features: its rows.
        num_rows: of the input, at most `MAX_TOKENS`.
        num_multiprocessors: of the GPU.
        shared_limit: bytes of shared memory that a thread block can have.
        warpgroups: whether the GPU has products of warpgroups.
    """
    sizes = in_features, out_features, num_rows, num_multiprocessors
    for tile in _tiles_for(kind, *sizes, warpgroups=warpgroups):
        cut = cut_as(tile, kind, *sizes, shared_limit)
        if cut is not None:
            return cut
    return None


@dataclass(frozen=True, slots=True)
class FewBitsTile:
    """How thread blocks share the work."""

    warpgroups: bool
    """Whether they multiply by warpgroups."""
    row_tiles: int
    """16 rows of the weight each, of a warp."""
    per_multiprocessor: int
    """Thread blocks that run there at the same time."""
    most_parts: int = 4
    """Thread blocks for a tile, for each of a multiprocessor: with more of them putting their sums together takes
    longer than they save."""


def cut_as(
    tile: FewBitsTile,
    kind: Kind,
    in_features: int,
    out_features: int,
    num_rows: int,
    num_multiprocessors: int,
    shared_limit: int,
) -> FewBitsPlan | None:
    """The launch with tiles of a size; None where there is no room for it. Arguments as of `plan_few_bits`."""
    counts = TOKEN_COUNTS[tile.warpgroups]
    tokens = counts[bisect_left(counts, num_rows)]
    stage, others = stage_bytes(kind, tile.warpgroups, tokens, tile.row_tiles)
    room = (shared_limit + KEPT_BYTES) // tile.per_multiprocessor - KEPT_BYTES - others
    stages = min(_MOST_STAGES, room // stage)
    if stages < _FEWEST_STAGES:
        return None
    tiles, chunks = -(-out_features // (_TILE_ROWS * tile.row_tiles)), -(-in_features // chunk_of(kind))
    num_blocks = min(
        tiles * min(chunks, tile.most_parts * tile.per_multiprocessor),
        num_multiprocessors * tile.per_multiprocessor,
    )
    return FewBitsPlan(
        kind=kind,
        tokens=tokens,
        row_tiles=tile.row_tiles,
        per_multiprocessor=tile.per_multiprocessor,
        stages=stages,
        warpgroups=tile.warpgroups,
        num_blocks=num_blocks,
    )


def most_rows(in_features: int, out_features: int, num_multiprocessors: int) -> int:
    """That go by launches of `MAX_TOKENS` each; for more of them a weight is brought into 16 bits for a library."""
    is_large = in_features * out_features >= _MANY_ELEMENTS * num_multiprocessors
    return 2 * MAX_TOKENS if is_large else MAX_TOKENS


def rows_of_piece(in_features: int, out_features: int) -> int:
    """Of the weight, that are in 16 bits at a time while a library multiplies: all alike, or nearly."""
    most = max(1, _PIECE_BYTES // (2 * in_features))
    pieces = -(-out_features // most)
    return -(-out_features // pieces) if pieces > 1 else out_features


def chunk_of(kind: Kind) -> int:
    """Inner elements that are brought at a time."""
    return _ROW_BYTES * (2 if kind == "int4" else 1)


def _tiles_for(
    kind: Kind, in_features: int, out_features: int, num_rows: int, num_multiprocessors: int, *, warpgroups: bool
) -> tuple[FewBitsTile, ...]:
    """The best first; the last one needs least room."""
    smallest = FewBitsTile(False, 1, 1)
    is_large = in_features * out_features >= _MANY_ELEMENTS * num_multiprocessors
    if warpgroups and is_large and num_rows > _FEW_ROWS[kind == "int4"]:
        return FewBitsTile(True, 2, 1, most_parts=8), smallest
    chunks = -(-out_features // (2 * _TILE_ROWS)) * -(-in_features // chunk_of(kind)) / num_multiprocessors
    if kind == "int4" and num_rows <= _ROWS_OF_LARGE_TILES and chunks >= 2 * _MANY_CHUNKS:
        return FewBitsTile(False, 4, 2), FewBitsTile(False, 2, 2), smallest
    twice = num_rows <= _ROWS_OF_TWO_BLOCKS and chunks >= _MANY_CHUNKS
    return FewBitsTile(False, 2, 2) if twice else FewBitsTile(False, 2, 1), smallest


def stage_bytes(kind: Kind, warpgroups: bool, tokens: int, row_tiles: int) -> tuple[int, int]:
    """Of a stage of the ring, and of what is besides it."""
    weights, inputs = _TILE_ROWS * row_tiles * _ROW_BYTES, 2 * tokens * chunk_of(kind)
    pairs, results = 256 * row_tiles * tokens, 2 * tokens * (_TILE_ROWS * row_tiles + 8)
    sums = max(pairs, results) + _NUMBER_BYTES
    return (weights, _INPUT_STAGES * inputs + sums) if warpgroups else (weights + inputs, sums)
