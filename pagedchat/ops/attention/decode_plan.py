"""How a decode kernel's sequences are split over the grid. Arithmetic only."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import lru_cache

from pagedchat.ops.attention.decode_costs import ALONE, IN_STEPS, Costs, Load, estimate
from pagedchat.ops.attention.decode_grid import BYTE_WARPS, NUM_WARPS, TILE_TOKENS, DecodeShape, SplitPlan

MAX_TILES = 1 << 30
PREFIX_WARPS = 4
"""Of a thread block that attends to a shared prefix."""
SHORT_TILES, OWN_WARPS = 2, 1
"""Own parts of so many tiles have one warp each where there are many of them: nothing to merge inside."""
MOST_GATHERED = 16
"""Thread blocks of a cluster, which gather their parts in shared memory: kernels/attention/decode_gather.cuh."""
_UNEVEN_LEN = 1024
"""Tokens of the longest from which on a batch of unknown lengths is split evenly."""
_UNEVEN_SPLITS, _UNEVEN_TILES = 4, 16
"""Thread blocks for a long sequence in a large batch, at least, and tiles that one of them is worth."""
_CROWD_LENS, _CROWD_SEQS = range(1025, 4097), 8
"""Tokens of the longest of a crowd whose splits were measured, and sequences in it, at least."""
_NARROW_HEAD = 64
_IN_CLUSTERS = {2: 0.95, 4: 0.9, 8: 0.9, 16: 0.84}
"""Share of the thread blocks that a GPU holds at a time which it holds as clusters of so many: what is left over of
the multiprocessors of each part of it (GPC) has none. As an H200 says, one part of which has fewer than ten."""
_IN_SMALL_CLUSTERS, _IN_LARGE_CLUSTERS = 0.75, 0.5
"""The same for other sizes, up to eight and beyond."""


def plan_split(
    shape: DecodeShape,
    num_seqs: int,
    max_len: int,
    num_tokens: int,
    num_multiprocessors: int,
    *,
    any_lengths: bool = False,
    clusters: bool = False,
) -> SplitPlan:
    """Split so that all multiprocessors work, in waves that are full.

    Args:
        shape: heads.
        num_seqs: sequences.
        max_len: tokens of the longest one that are looked at.
        num_tokens: of all together.
        num_multiprocessors: of the GPU.
        any_lengths: whether `max_len` and `num_tokens` are what they may be, and not what they are.
        clusters: whether the GPU has them (sm_90).
    """
    # To whole tiles, and three digits of the total: the same plan for some steps, found in the cache.
    max_tiles, digits = max(1, -(-max_len // TILE_TOKENS)), max(0, len(str(num_tokens)) - 3)
    total = min(round(num_tokens, -digits), num_seqs * max_tiles * TILE_TOKENS)
    crowd = _split_for_crowd(shape, num_seqs, max_tiles) if any_lengths else None
    if crowd is not None:
        columns = shape.columns(num_seqs)
        return replace(crowd, gathers=clusters and _gathers(shape, crowd, columns, num_multiprocessors))
    costs = IN_STEPS if any_lengths else ALONE
    return split_for(shape, num_seqs, max_tiles * TILE_TOKENS, total, num_multiprocessors, costs, clusters=clusters)


def _split_for_crowd(shape: DecodeShape, num_seqs: int, max_tiles: int) -> SplitPlan | None:
    """For sequences of which few are as long as the longest, from short ones to some ten times as long.

    Small parts fill the GPU where there are few columns; where there are many, thread blocks without tokens take
    longer to come and go than long sequences would to be waited for. Else as `split_for` has it. Chosen among those
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
def split_for(
    shape: DecodeShape,
    num_seqs: int,
    max_len: int,
    num_tokens: int,
    num_multiprocessors: int,
    costs: Costs = ALONE,
    *,
    clusters: bool = False,
) -> SplitPlan:
    """See `plan_split`: the plan that is estimated to take the least time."""
    tiles = max(1, -(-max_len // TILE_TOKENS))
    columns = shape.columns(num_seqs)
    is_even = costs.any_lengths and max_len >= _UNEVEN_LEN
    fewest = min(_UNEVEN_SPLITS, tiles // _UNEVEN_TILES) if is_even and num_seqs > 1 else 1
    tokens = [min(num_seqs * max_len, int(num_tokens * times)) for times in costs.lengths]
    best, least = SplitPlan(NUM_WARPS[0], tiles, 1), float("inf")
    for num_warps in (*NUM_WARPS, BYTE_WARPS):
        resident = shape.resident_thread_blocks(num_warps)
        if resident == 0:
            continue
        load = Load(num_seqs, columns, max_len, resident, num_multiprocessors)
        for wanted in _split_counts(tiles, columns, resident * num_multiprocessors, fewest):
            plan = _evenly(num_warps, tiles, wanted) if is_even else SplitPlan(num_warps, *_in_runs(tiles, wanted))
            plan = replace(plan, gathers=clusters and _gathers(shape, plan, columns, num_multiprocessors))
            time = sum(estimate(shape, plan, load, each, costs) for each in tokens)
            if time < least:
                best, least = plan, time
    return best


def _in_runs(tiles: int, wanted: int) -> tuple[int, int]:
    """Tiles of a thread block, and how many thread blocks they make, about as many as are wanted."""
    per_split = -(-tiles // wanted)
    return per_split, -(-tiles // per_split)


def _evenly(num_warps: int, tiles: int, num_splits: int) -> SplitPlan:
    """For sequences that are mostly shorter than the longest, which must not be what all others wait for."""
    per_split = max(num_warps, min(_UNEVEN_TILES, -(-tiles // num_splits)))
    return SplitPlan(num_warps, per_split, num_splits, is_even=True)


def _gathers(shape: DecodeShape, plan: SplitPlan, columns: int, num_multiprocessors: int) -> bool:
    """Whether clusters of a sequence's thread blocks are likely to fit on the GPU at a time, all of them."""
    size = plan.num_splits
    if not 1 < size <= MOST_GATHERED:
        return False
    share = _IN_CLUSTERS.get(size, _IN_SMALL_CLUSTERS if size <= 8 else _IN_LARGE_CLUSTERS)
    return size * columns <= share * shape.resident_thread_blocks(plan.num_warps) * num_multiprocessors


def _split_counts(tiles: int, columns: int, slots: int, fewest: int) -> Iterator[int]:
    """From the fewest on, some that fill a wave of `slots` thread blocks up to thrice, by steps of an eighth."""
    count, most = fewest, min(tiles, max(fewest, 3 * slots // columns))
    while count <= most:
        yield count
        count += max(1, count // 8)


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
    costs = IN_STEPS if any_lengths else ALONE
    return SharedPlan(shared, grid_heads, _plan_own(shape, num_seqs, max_own_len, num_multiprocessors, costs))


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


def _plan_own(
    shape: DecodeShape, num_seqs: int, max_own_len: int, num_multiprocessors: int, costs: Costs
) -> SplitPlan:
    tiles = max(1, -(-max_own_len // TILE_TOKENS))
    columns = shape.columns(num_seqs)
    if tiles <= SHORT_TILES and columns >= 2 * num_multiprocessors:
        return SplitPlan(OWN_WARPS, tiles, 1)
    return split_for(shape, num_seqs, max_own_len, num_seqs * max_own_len, num_multiprocessors, costs)
