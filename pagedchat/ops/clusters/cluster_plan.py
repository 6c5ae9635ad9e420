"""How a product of up to 64 rows is cut for clusters of Hopper's multiprocessors. Arithmetic only."""

from bisect import bisect_left
from dataclasses import dataclass
from functools import cache

from pagedchat.jit.kernel_file import Constants
from pagedchat.ops.quantized.weight_form import WHOLE, WeightForm

ROWS, BYTES_ROWS = 64, 128
"""Of the weight, of a tile: of 16 bits, and of a byte an element."""
MAX_TOKENS = 64
"""Of a launch."""
_TOKENS = (16, 32, MAX_TOKENS)
"""Of a tile: a launch has the next larger one."""
_CHUNK = 64
"""Inner elements that are multiplied at a time, as in kernels/clusters/cluster_linear.cu."""
_PIECE, _COPIED_BYTES = 8, 16
"""Elements that are written at a time; bytes of which rows are whole numbers, to be copied."""
_GROUP_ROWS, _GROUP_THREADS, _FETCHING_THREADS = 64, 128, 32
"""Rows of a tile for each warpgroup that multiplies; its threads; a warp fetches."""
_BYTE = 8
"""Bits."""
_BARRIER_BYTES = 16
"""Of a stage, and at most for all sums and what alignment takes."""
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
_BYTES_ALONE, _BYTES_DEEP, _BYTES_MOST_SLICED, _BYTES_CHUNKS = 5 / 8, 128, 2.0, 8
"""Of a byte an element: thread blocks a multiprocessor up to which each is alone there; chunks of a row from which
on slices may be as many as leave so many a multiprocessor; chunks of a slice, at least, where thread blocks are not
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
    rows: int = ROWS
    """Of the weight, of a tile."""

    @property
    def constants(self) -> Constants:
        """For the compiler, besides what the product itself is."""
        return {
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
        return self.stages * _stage_bytes(self.tokens) + _BARRIER_BYTES

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
    rows = _tile_rows(form)
    tiles, chunks = _num_tiles(out_features, rows, paired), -(-in_features // _CHUNK)
    if form.few and (form.bits != _BYTE or form.scales):
        return None  # there is no code for them
    is_whole = in_features * form.bits // 8 % _COPIED_BYTES == 0 and out_features % _PIECE == 0
    if not is_whole or not 1 <= num_tokens <= MAX_TOKENS or tiles > _MOST_TILES * num_multiprocessors:
        return None
    tokens = _tile_tokens(num_tokens)
    slice_up = _slices_of_bytes if form.few else _num_slices
    slices = slice_up(tiles, chunks, tokens // _FEWEST_FINISHED, num_multiprocessors)
    sharers = _num_sharers(slices, slices * tiles, tokens, num_multiprocessors)
    if form.few:
        sharers = min(sharers, tokens // _MATRIX_TOKENS)
        is_alone = slices * tiles <= _BYTES_ALONE * num_multiprocessors
    else:
        tokens = _tile_tokens(max(num_tokens, _MATRIX_TOKENS * sharers))
        is_alone = slices == _ALONE_SLICES and slices * tiles <= num_multiprocessors
    stages = _num_stages(tokens, shared_limit, is_alone=is_alone)
    return None if stages < _FEWEST_STAGES else ClusterPlan(tokens, slices, sharers, stages, rows)


def _tile_tokens(num_tokens: int) -> int:
    return _TOKENS[bisect_left(_TOKENS, num_tokens)]


def _tile_rows(form: WeightForm) -> int:
    return BYTES_ROWS if form.few else ROWS


def _num_tiles(out_features: int, rows: int, paired: bool) -> int:
    return -(-out_features // (rows // (1 + paired)))


def _num_slices(tiles: int, chunks: int, most: int, num_multiprocessors: int) -> int:
    most = min(chunks // _FEWEST_CHUNKS, most)
    fits = (n for n in _SLICES if n <= most and n * tiles <= _MOST_SLICED * num_multiprocessors)
    return next(fits, 1)


def _slices_of_bytes(tiles: int, chunks: int, most: int, num_multiprocessors: int) -> int:
    crowd = _BYTES_MOST_SLICED if chunks >= _BYTES_DEEP else _MOST_SLICED
    for slices in _SLICES:
        is_alone = slices * tiles <= _BYTES_ALONE * num_multiprocessors
        is_deep = slices * tiles <= crowd * num_multiprocessors and chunks >= _BYTES_CHUNKS * slices
        if slices <= min(chunks, most) and (is_alone or is_deep):
            return slices
    return 1


def _num_stages(tokens: int, shared_limit: int, *, is_alone: bool) -> int:
    """That find room in the part of a multiprocessor that a thread block has."""
    half = (shared_limit + _RESERVED_BYTES) // _RESIDENT - _RESERVED_BYTES
    room = int(shared_limit * _ALONE_SHARE) if is_alone else half
    return (room - _BARRIER_BYTES) // _stage_bytes(tokens)


def _num_sharers(slices: int, num_blocks: int, tokens: int, num_multiprocessors: int) -> int:
    places = _RESIDENT * num_multiprocessors
    if slices == 1 and tokens <= _FEW_TOKENS and num_blocks <= places:
        return 1
    last = (num_blocks - 1) % places + 1
    if slices > _WIDEST_SHARED or num_blocks < _CROWDED * num_multiprocessors or last > _NEARLY_ALL * places:
        return 1
    return _SHARERS


def _stage_bytes(tokens: int) -> int:
    """A tile's weights have as many bytes in either form."""
    return 2 * _CHUNK * (tokens + ROWS) + _BARRIER_BYTES
