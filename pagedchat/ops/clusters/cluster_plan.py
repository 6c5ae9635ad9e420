"""How a product of up to 64 rows is cut for clusters of Hopper's multiprocessors. Arithmetic only."""

from bisect import bisect_left
from dataclasses import dataclass
from functools import cache

from pagedchat.jit.kernel_file import Constants
from pagedchat.ops.quantized.weight_form import NUMBERS, WHOLE, WeightForm

ROWS, FEW_BITS_ROWS = 64, 128
"""Of the weight, of a tile: of 16 bits, and of few."""
MAX_TOKENS = 64
"""Of a launch."""
_TOKENS = (16, 32, MAX_TOKENS)
"""Of a tile: a launch has the next larger one."""
_CHUNK, _CHUNK_OF_4_BITS = 64, 128
"""Inner elements that are multiplied at a time, as in kernels/clusters/stored_chunk.cuh."""
_LEAST_GROUP, _SCALE_PIECE, _SCALE_BYTES = 32, 8, 2
"""Of few bits: whose multiples groups are; groups of a row whose scales are copied together; of a scale."""
_PIECE, _COPIED_BYTES = 8, 16
"""Elements that are written at a time; bytes of which rows are whole numbers, to be copied."""
_GROUP_ROWS, _GROUP_THREADS, _FETCHING_THREADS = 64, 128, 32
"""Rows of a tile for each warpgroup that multiplies; its threads; a warp fetches."""
_WARP_ROWS = 16
"""Rows of a tile for each warp."""
_BARRIER_BYTES = 16
"""Of a stage, and at most for all sums and what alignment takes."""
_FACTOR_BYTES = 4
"""Of a token, for a norm that is due."""
_RESERVED_BYTES = 1 << 10
"""Of shared memory that each thread block costs a multiprocessor besides its own."""
_RESIDENT = 2
"""Thread blocks for which a multiprocessor has room, those of this product and of the next, but where one is alone
there."""

# With these every product of DECODE_STEPS.md's tables, of 16 to 64 rows, gets the cut that was the quickest of all
# that were tried, or one at most 4 % slower.
_SLICES = (8, 4, 2, 1)
"""Thread blocks of a tile: as many as leave at most `_MOST_SLICED` a multiprocessor."""
_MOST_SLICED = 1.5
_FEWEST_CHUNKS, _FEWEST_STAGES = 2, 2
"""Of a slice; in shared memory at a time."""
_FEWEST_FINISHED, _MATRIX_TOKENS = 4, 8
"""Tokens for each slice, so that every thread block has gates and their values to finish; tokens of a matrix, which
is copied whole."""
_SHARERS, _WIDEST_SHARED = 4, 2
"""Tiles that share tokens, and slices that they have at most: a cluster of 8."""
_FEW_TOKENS = 32
"""Up to so many tokens tiles that all run at once have their own, if they are not sliced."""
_ALONE_SLICES, _ALONE_SHARE = 2, 5 / 7
"""Thread blocks of so many slices a tile, where there are no more than multiprocessors, take this share of shared
memory, so that each is alone. With room for two they come in twos to the multiprocessors that are free first, and
others get none."""
_CROWDED = 4 / 3
"""Thread blocks a multiprocessor from which on some have two, for which the way out of the L2 cache is too narrow
unless tokens are shared."""
_NEARLY_ALL = 0.85
"""Of all places, in the last round: clusters of `_SHARERS` do not find room on so many, single thread blocks do."""
_FEW_BITS_ALONE, _DEEP, _MOST_SLICED_DEEP, _LEAST_SLICE = 5 / 8, 8192, 2.0, 512
"""Of few bits: thread blocks a multiprocessor up to which each is alone there; elements of a row from which on
slices may be as many as leave so many a multiprocessor; elements of a slice, at least, where thread blocks are not
alone."""
_MOST_TILES = 4.5
"""A multiprocessor: with many more beginning and ending each takes longer than streaming through all at once."""


@dataclass(frozen=True, slots=True)
class ClusterPlan:
    """Constants of a variant."""

    tokens: int
    """Of a tile, padding included."""
    slices: int
    """Thread blocks that share a tile's inner elements."""
    sharers: int
    """Tiles for which tokens are fetched together."""
    stages: int
    """Chunks in shared memory at a time."""
    form: WeightForm = WHOLE
    """Of the weight."""

    @property
    def rows(self) -> int:
        """Of the weight, of a tile."""
        return FEW_BITS_ROWS if self.form.few else ROWS

    @property
    def constants(self) -> Constants:
        """For the compiler, besides what the product itself is."""
        groups: Constants = {"SCALE_GROUP": self.form.scale_group} if self.form.scale_group else {}
        return {
            "WEIGHT_KIND": NUMBERS[self.form.kind],
            "SCALES": self.form.scales,
            **groups,
            "TOKENS": self.tokens,
            "SLICES": self.slices,
            "SHARERS": self.sharers,
            "STAGES": self.stages,
        }

    @property
    def num_threads(self) -> int:
        """Of a thread block."""
        return self.rows // _GROUP_ROWS * _GROUP_THREADS + _FETCHING_THREADS

    @property
    def shared_bytes(self) -> int:
        """Size of `Shared` in the kernel."""
        return _shared_bytes(self.stages, self.tokens, self.form)

    def num_sums(self, out_features: int) -> int:
        """Sums of squares that a row of the output has in a norm ahead, one for each of its tiles' parts."""
        warps = self.rows // _WARP_ROWS
        return -(-out_features // (_WARP_ROWS * min(warps, self.tokens // _MATRIX_TOKENS * warps // self.slices)))

    def num_blocks(self, out_features: int, paired: bool) -> int:
        """Thread blocks of a launch, in whole clusters."""
        return -(-_num_tiles(out_features, self.rows, paired) // self.sharers) * self.sharers * self.slices


@cache
def plan_clusters(
    in_features: int,
    out_features: int,
    num_tokens: int,
    paired: bool,
    num_multiprocessors: int,
    shared_limit: int,
    form: WeightForm = WHOLE,
) -> ClusterPlan | None:
    """How a product is cut; None where the kernel cannot do it, or has too many tiles to do.

    Args:
        in_features: the inner dimension.
        out_features: columns of the output.
        num_tokens: of the launch.
        paired: whether the weight has a gate and a value for each column.
        num_multiprocessors: of the GPU.
        shared_limit: bytes of shared memory that a thread block can have.
        form: of the weight.
    """
    tiles, chunk = _num_tiles(out_features, FEW_BITS_ROWS if form.few else ROWS, paired), _chunk_of(form)
    if not _takes(form, in_features):
        return None
    is_whole = in_features * form.bits // 8 % _COPIED_BYTES == 0 and out_features % _PIECE == 0
    if not is_whole or not 1 <= num_tokens <= MAX_TOKENS or tiles > _MOST_TILES * num_multiprocessors:
        return None
    tokens = _tile_tokens(num_tokens)
    if form.few:
        if tokens == _TOKENS[0] and in_features >= _DEEP:
            return None  # products of warps take less
        sharers, slices = 1, _slices_of_few_bits(tiles, in_features, chunk, tokens, num_multiprocessors)
        is_alone = slices * tiles <= _FEW_BITS_ALONE * num_multiprocessors
    else:
        slices = _num_slices(tiles, -(-in_features // chunk), tokens, num_multiprocessors)
        sharers = _num_sharers(slices, slices * tiles, tokens, num_multiprocessors)
        tokens = _tile_tokens(max(num_tokens, _MATRIX_TOKENS * sharers))
        is_alone = slices == _ALONE_SLICES and slices * tiles <= num_multiprocessors
    stages = _num_stages(tokens, form, shared_limit, is_alone=is_alone)
    return None if stages < _FEWEST_STAGES else ClusterPlan(tokens, slices, sharers, stages, form)


def _tile_tokens(num_tokens: int) -> int:
    return _TOKENS[bisect_left(_TOKENS, num_tokens)]


def _chunk_of(form: WeightForm) -> int:
    return _CHUNK_OF_4_BITS if form.bits == 4 else _CHUNK


def _takes(form: WeightForm, in_features: int) -> bool:
    """Whether the kernel has code for weights of this form: chunks are whole groups, or parts of one, and a row's
    scales whole pieces."""
    group, chunk = form.scale_group, _chunk_of(form)
    if not group:
        return not form.has_minimums
    has_pieces = form.num_groups(in_features) % _SCALE_PIECE == 0
    return has_pieces and group % _LEAST_GROUP == 0 and (chunk % group == 0 or group % chunk == 0)


def _num_tiles(out_features: int, rows: int, paired: bool) -> int:
    return -(-out_features // (rows // (1 + paired)))


def _num_slices(tiles: int, chunks: int, tokens: int, num_multiprocessors: int) -> int:
    most = min(chunks // _FEWEST_CHUNKS, tokens // _FEWEST_FINISHED)
    fits = (n for n in _SLICES if n <= most and n * tiles <= _MOST_SLICED * num_multiprocessors)
    return next(fits, 1)


def _slices_of_few_bits(tiles: int, in_features: int, chunk: int, tokens: int, num_multiprocessors: int) -> int:
    most = min(-(-in_features // chunk), tokens // _FEWEST_FINISHED)
    crowd = _MOST_SLICED_DEEP if in_features >= _DEEP else _MOST_SLICED
    for slices in _SLICES:
        is_alone = slices * tiles <= _FEW_BITS_ALONE * num_multiprocessors
        is_deep = slices * tiles <= crowd * num_multiprocessors and in_features >= _LEAST_SLICE * slices
        if slices <= most and (is_alone or is_deep):
            return slices
    return 1


def _num_stages(tokens: int, form: WeightForm, shared_limit: int, *, is_alone: bool) -> int:
    """That find room in the part of a multiprocessor that a thread block has."""
    half = (shared_limit + _RESERVED_BYTES) // _RESIDENT - _RESERVED_BYTES
    room = int(shared_limit * _ALONE_SHARE) if is_alone else half
    stages = room // _stage_bytes(tokens, form)
    while _shared_bytes(stages, tokens, form) > room:
        stages -= 1
    return stages


def _shared_bytes(stages: int, tokens: int, form: WeightForm) -> int:
    """Size of `Shared` in the kernel: stages, and of groups the scales of their chunks and of some before them."""
    places = stages * _chunk_of(form) // (_SCALE_PIECE * form.scale_group) + 2 if form.scale_group else 0
    piece = FEW_BITS_ROWS * _SCALE_PIECE * _SCALE_BYTES * form.scales
    of_all = _FACTOR_BYTES * tokens + _BARRIER_BYTES
    return stages * _stage_bytes(tokens, form) + places * piece + of_all


def _num_sharers(slices: int, num_blocks: int, tokens: int, num_multiprocessors: int) -> int:
    places = _RESIDENT * num_multiprocessors
    if slices == 1 and tokens <= _FEW_TOKENS and num_blocks <= places:
        return 1
    last = (num_blocks - 1) % places + 1
    if slices > _WIDEST_SHARED or num_blocks < _CROWDED * num_multiprocessors or last > _NEARLY_ALL * places:
        return 1
    return _SHARERS


def _stage_bytes(tokens: int, form: WeightForm) -> int:
    """A chunk's weights have as many bytes in any form."""
    return 2 * _chunk_of(form) * tokens + 2 * _CHUNK * ROWS + _BARRIER_BYTES
