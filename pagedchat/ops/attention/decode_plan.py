"""How a decode kernel's sequences are split over the grid. Arithmetic only."""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache

TILE_TOKENS = 32
"""Tokens a warp attends to at a time: `TILE_TOKENS` of kernels/attention/decode_tiles.cuh."""
MAX_TILES = 1 << 30
PREFIX_WARPS = 4
"""Of a thread block that attends to a shared prefix."""
SHORT_TILES, OWN_WARPS = 2, 1
"""Own parts of so many tiles have one warp each where there are many of them: nothing to merge inside."""
NUM_WARPS = (2, 4, 8)
"""Sizes of thread blocks: many small ones for large batches, few large ones for small batches."""
BYTE_WARPS = 12
"""Of a multiprocessor that attends to bytes, with heads of 80 to 128: their tiles take fewer registers. Also of a
thread block there, where a multiprocessor has one and groups are no larger than `BYTE_GROUP`."""
BYTE_GROUP = 4
_UNEVEN_LEN = 1024
"""Tokens of the longest from which on a batch of unknown lengths is split evenly."""
_UNEVEN_SPLITS, _UNEVEN_TILES = 4, 16
"""Thread blocks for a long sequence in a large batch, at least, and tiles that one of them is worth."""
_CROWD_LENS, _CROWD_SEQS = range(1025, 4097), 8
"""Tokens of the longest of a crowd whose splits were measured, and sequences in it, at least."""
_NARROW_HEAD = 64
MAX_SHARED_BYTES = 44 << 10
"""Static shared memory for the outputs of a thread block's warps; other things take some of the 48 KiB."""


@dataclass(frozen=True, slots=True)
class DecodeShape:
    """What decides how many thread blocks there are, and how many fit on a multiprocessor."""

    num_kv_heads: int
    group_size: int
    head_size: int
    element_bytes: int = 2
    """Of the cache."""

    @property
    def max_rows(self) -> int:
        """Query rows a thread block has registers for: `MAX_ROWS` of kernels/attention/decode_merge.cuh."""
        return min(32, 2048 // self.head_size // 8 * 8)

    @property
    def rows(self) -> int:
        """Query heads that a thread block serves."""
        return min(self.group_size, self.max_rows)

    def resident_thread_blocks(self, num_warps: int) -> int:
        """Thread blocks that a multiprocessor holds, as the kernel asks for them; 0: they do not fit."""
        if num_warps * self.rows * (self.head_size + 4) * 4 > MAX_SHARED_BYTES:
            return 0
        if num_warps == BYTE_WARPS and not self.has_byte_warps:
            return 0
        of_wide_heads = BYTE_WARPS if self.element_bytes == 1 and self.head_size <= 128 and self.rows <= 8 else 8
        resident_warps = 16 if self.head_size <= 64 and self.rows <= 8 else of_wide_heads
        return max(1, resident_warps // num_warps) if num_warps < 8 else 1

    @property
    def has_byte_warps(self) -> bool:
        """Whether there are thread blocks of `BYTE_WARPS`."""
        return self.element_bytes == 1 and 64 < self.head_size <= 128 and self.group_size <= BYTE_GROUP

    @property
    def row_blocks(self) -> int:
        """Thread blocks that share the heads of a large group."""
        return -(-self.group_size // self.max_rows)


@dataclass(frozen=True, slots=True)
class SplitPlan:
    """The grid of a decode kernel."""

    num_warps: int
    """Of a thread block."""
    tiles_per_split: int
    """Tiles of a thread block; if `is_even` at least."""
    num_splits: int
    """Thread blocks along the longest sequence."""
    is_even: bool = False
    """Whether every sequence that is long enough is shared out among all of them, the longest or not. Each has to
    know its length before it looks for its blocks, which takes some 0.3 us."""


def plan_split(
    shape: DecodeShape,
    num_seqs: int,
    max_len: int,
    num_tokens: int,
    num_multiprocessors: int,
    *,
    any_lengths: bool = False,
) -> SplitPlan:
    """Split so that all multiprocessors work, in waves that are full.

    Args:
        shape: heads.
        num_seqs: sequences.
        max_len: tokens of the longest one that are looked at.
        num_tokens: of all together.
        num_multiprocessors: of the GPU.
        any_lengths: whether `max_len` and `num_tokens` are what they may be, and not what they are.
    """
    # To whole tiles, and three digits of the total: the same plan for some steps, found in the cache.
    max_tiles, digits = max(1, -(-max_len // TILE_TOKENS)), max(0, len(str(num_tokens)) - 3)
    total = min(round(num_tokens, -digits), num_seqs * max_tiles * TILE_TOKENS)
    plan = split_for(shape, num_seqs, max_tiles * TILE_TOKENS, total, num_multiprocessors)
    if not any_lengths:
        return plan
    return _split_for_crowd(shape, num_seqs, max_tiles) or _evenly(plan, max_tiles)


def _split_for_crowd(shape: DecodeShape, num_seqs: int, max_tiles: int) -> SplitPlan | None:
    """For sequences of which few are as long as the longest, from short ones to some ten times as long.

    Small parts fill the GPU where there are few columns; where there are many, thread blocks without tokens take
    longer to come and go than long sequences would to be waited for. None: as `_evenly` has it. Chosen among those
    timed on an H200 with the lengths that a crowd of 200 has from its beginning to its end (heads of 64 and 128,
    two and eight KV heads).
    """
    of_measured = shape.element_bytes == 2 and shape.head_size <= 128 and shape.group_size <= 8
    if not of_measured or num_seqs < _CROWD_SEQS or max_tiles * TILE_TOKENS not in _CROWD_LENS:
        return None
    columns, is_narrow = num_seqs * shape.num_kv_heads, shape.head_size <= _NARROW_HEAD
    if columns <= 64:
        return SplitPlan(4, 4 if is_narrow else 8, 8, is_even=True)
    if columns <= (192 if is_narrow else 128):
        return SplitPlan(4, 8 if is_narrow else 12, 8, is_even=True)
    return SplitPlan(4, 16, 4, is_even=True) if columns <= 512 else None


@lru_cache(maxsize=4096)
def _evenly(plan: SplitPlan, max_tiles: int) -> SplitPlan:
    """For sequences that are mostly shorter than the longest, which must not be what all others wait for."""
    if max_tiles * TILE_TOKENS < _UNEVEN_LEN:
        return plan
    num_splits = max(plan.num_splits, min(_UNEVEN_SPLITS, max_tiles // _UNEVEN_TILES))
    fewest = max(plan.num_warps, min(_UNEVEN_TILES, -(-max_tiles // num_splits)))
    return SplitPlan(plan.num_warps, fewest, num_splits, is_even=True)


@lru_cache(maxsize=4096)
def split_for(
    shape: DecodeShape, num_seqs: int, max_len: int, num_tokens: int, num_multiprocessors: int
) -> SplitPlan:
    """See `plan_split`: the plan that is estimated to take the least time."""
    tiles = max(1, -(-max_len // TILE_TOKENS))
    columns = num_seqs * shape.num_kv_heads * shape.row_blocks
    num_bytes = 2 * shape.element_bytes * num_tokens * shape.num_kv_heads * shape.row_blocks * shape.head_size
    best, least = SplitPlan(NUM_WARPS[0], tiles, 1), float("inf")
    for num_warps in (*NUM_WARPS, BYTE_WARPS):
        resident = shape.resident_thread_blocks(num_warps)
        if resident == 0:
            continue
        for wanted in _split_counts(tiles, columns, resident * num_multiprocessors):
            plan = SplitPlan(num_warps, -(-tiles // wanted), -(-tiles // -(-tiles // wanted)))
            filled = max(columns, -(-plan.num_splits * columns * num_tokens // max(1, num_seqs * max_len)))
            time = _estimate(shape, plan, filled, num_bytes, resident, num_multiprocessors)
            if time < least:
                best, least = plan, time
    return best


def _split_counts(tiles: int, columns: int, slots: int) -> Iterator[int]:
    """One split, and some that fill a wave of `slots` thread blocks up to three times, by steps of an eighth."""
    count, most = 1, min(tiles, max(1, 3 * slots // columns))
    while count <= most:
        yield count
        count += max(1, count // 8)


def _estimate(
    shape: DecodeShape,
    plan: SplitPlan,
    num_thread_blocks: int,
    num_bytes: int,
    resident: int,
    num_multiprocessors: int,
) -> float:
    """Microseconds: a launch, waves of thread blocks that wait for tile after tile, and the time of the memory.

    The constants fit 444 timings on an H200 (1 to 256 sequences of 64 to 32768 tokens, heads of 64 and 128);
    the plans that it picks among those are 0.6 % slower than the best on average, 8 % at worst.
    """
    waves = -(-num_thread_blocks // (resident * num_multiprocessors))
    turns = -(-plan.tiles_per_split // plan.num_warps)
    busy_warps = min(resident, -(-num_thread_blocks // num_multiprocessors)) * plan.num_warps
    turn = 0.897 * (1 + 0.0863 * busy_warps * shape.head_size * shape.element_bytes / 128)
    waiting = waves * (1.247 + turn * turns)
    reading = num_bytes / 4.5e6
    merging = 1.603 + 0.0243 * plan.num_splits if plan.num_splits > 1 else 0.0
    return 1.482 + merging + float((waiting**2.412 + reading**2.412) ** (1 / 2.412))


def own_len(seq_len: int, shared_len: int) -> int:
    """Tokens of a sequence from the tile on in which its shared ones end: what its own part goes through."""
    return seq_len - shared_len // TILE_TOKENS * TILE_TOKENS


@dataclass(frozen=True, slots=True)
class SharedPlan:
    """The grids of the two launches of `decode_shared`."""

    shared: SplitPlan
    grid_heads: int
    """Thread blocks of the prefix launch for all KV heads and rows of all groups."""
    own: SplitPlan

    @property
    def max_parts(self) -> int:
        """Thread blocks that leave their share of a row."""
        return self.shared.num_splits + self.own.num_splits


def plan_shared(
    shape: DecodeShape,
    num_seqs: int,
    max_own_len: int,
    max_shared_len: int,
    max_group_size: int,
    num_groups: int,
    num_multiprocessors: int,
    *,
    any_lengths: bool = False,
) -> SharedPlan:
    """Split the prefixes over the grid, and each sequence's own part.

    Args:
        shape: heads.
        num_seqs: sequences.
        max_own_len: the largest `own_len` of a sequence.
        max_shared_len: tokens of the longest shared prefix.
        max_group_size: sequences of the largest group.
        num_groups: groups, those of one sequence with nothing shared included.
        num_multiprocessors: of the GPU.
        any_lengths: as for `plan_split`.
    """
    row_blocks = _most_row_blocks(shape, num_seqs, max_group_size, num_groups)
    grid_heads = shape.num_kv_heads * row_blocks
    shared = _plan_prefix(max_shared_len, grid_heads, num_multiprocessors)
    own = _plan_own(shape, num_seqs, max_own_len, num_multiprocessors)
    tiles = max(1, -(-max_own_len // TILE_TOKENS))
    return SharedPlan(shared, grid_heads, _evenly(own, tiles) if any_lengths else own)


def _most_row_blocks(shape: DecodeShape, num_seqs: int, max_group_size: int, num_groups: int) -> int:
    """Thread blocks for the rows of one KV head, if each group has some of its own and fills all but the last."""
    rows, most = shape.group_size, shape.max_rows
    each_alone = num_groups * -(-max_group_size * rows // most)
    return min(each_alone, (num_seqs * rows + num_groups * (most - 1)) // most)


def _plan_prefix(max_shared_len: int, columns: int, num_multiprocessors: int) -> SplitPlan:
    """About three thread blocks for two multiprocessors, each with two turns of its warps or more.

    Of the plans timed on an H200 (8 to 256 sequences over 1024 tokens, heads of 64 and 128) these are the best.
    """
    tiles = max(1, -(-max_shared_len // TILE_TOKENS))
    wanted = max(1, round(1.5 * num_multiprocessors / columns))
    turns = max(2, -(-tiles // (wanted * PREFIX_WARPS)))
    per_split = turns * PREFIX_WARPS
    return SplitPlan(PREFIX_WARPS, per_split, -(-tiles // per_split))


def _plan_own(shape: DecodeShape, num_seqs: int, max_own_len: int, num_multiprocessors: int) -> SplitPlan:
    tiles = max(1, -(-max_own_len // TILE_TOKENS))
    columns = num_seqs * shape.num_kv_heads * shape.row_blocks
    if tiles <= SHORT_TILES and columns >= 2 * num_multiprocessors:
        return SplitPlan(OWN_WARPS, tiles, 1)
    return split_for(shape, num_seqs, max_own_len, num_seqs * max_own_len, num_multiprocessors)
