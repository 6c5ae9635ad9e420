"""How a decode kernel's sequences are split over the grid. Arithmetic only."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
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
MOST_GATHERED = 16
"""Thread blocks of a cluster, which gather their parts in shared memory: kernels/attention/decode_gather.cuh."""
_IN_CLUSTERS = {2: 0.95, 4: 0.9, 8: 0.9, 16: 0.84}
"""Share of the thread blocks that a GPU holds at a time which it holds as clusters of so many: what is left over of
the multiprocessors of each part of it (GPC) has none. As an H200 says, one part of which has fewer than ten."""
_IN_SMALL_CLUSTERS, _IN_LARGE_CLUSTERS = 0.75, 0.5
"""The same for other sizes, up to eight and beyond."""
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
    gathers: bool = False
    """Whether the thread blocks of a sequence are to be a cluster, if the GPU has room for all at a time."""


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
        columns = num_seqs * shape.num_kv_heads * shape.row_blocks
        return replace(crowd, gathers=clusters and _gathers(shape, crowd, columns, num_multiprocessors))
    costs = IN_STEPS if any_lengths else ALONE
    return split_for(shape, num_seqs, max_tiles * TILE_TOKENS, total, num_multiprocessors, costs, clusters=clusters)


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


@dataclass(frozen=True, slots=True)
class Costs:
    """Microseconds that parts of a launch take; see `_estimate`."""

    launch: float
    wave: float
    turn: float
    """Of a warp that waits for a tile by itself; with each busy warp it is longer by `crowding`."""
    crowding: float
    terabytes_s: float
    power: float
    """How waiting and reading overlap: their sum with 1, the longer of them with many."""
    merging: float
    merging_part: float
    gathering: float
    """In place of merging, in a cluster."""
    gathering_part: float
    gathering_round: float
    """For the pieces that a thread sends."""
    gathering_block: float
    """For each thread block that a multiprocessor has."""
    hidden_turns: float
    """Whose tiles are on their way before the launch has all it waits for."""
    lengths: tuple[float, ...] = (1.0,)
    """Times the mean: for which a plan is to be good, where lengths are only known to be below a limit."""


ALONE = Costs(1.482, 1.247, 0.897, 0.0863, 4.5, 2.412, 1.603, 0.0243, 0.3, 0.04, 0.4, 0.0, 0.0)
"""These fit 444 timings on an H200 (1 to 256 sequences of 64 to 32768 tokens, heads of 64 and 128); the plans that
are picked among those are 0.6 % slower than the best on average, 8 % at worst. Those of clusters were chosen with
4,648 timings of 294 shapes (1 to 32 sequences of 96 to 8192 tokens): 1.8 % and 19 %."""
IN_STEPS = Costs(0.0, 0.85, 1.21, 0.038, 5.49, 2.64, 1.367, 0.05, 0.05, 0.05, 0.66, 0.14, 0.465, (0.8, 1.0, 1.3))
"""Chosen with 4,032 timings there of whole layers of four models, of one over fp8 too (1 to 32 sequences of 100 to
30000 tokens): layers take 0.5 % longer than with the best plan on average, 5 % at worst."""


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
    columns = num_seqs * shape.num_kv_heads * shape.row_blocks
    is_even = len(costs.lengths) > 1 and max_len >= _UNEVEN_LEN
    fewest = min(_UNEVEN_SPLITS, tiles // _UNEVEN_TILES) if is_even and num_seqs > 1 else 1
    best, least = SplitPlan(NUM_WARPS[0], tiles, 1), float("inf")
    for num_warps in (*NUM_WARPS, BYTE_WARPS):
        resident = shape.resident_thread_blocks(num_warps)
        if resident == 0:
            continue
        for wanted in _split_counts(tiles, columns, resident * num_multiprocessors, fewest):
            plan = _evenly(num_warps, tiles, wanted) if is_even else SplitPlan(num_warps, *_in_runs(tiles, wanted))
            plan = replace(plan, gathers=clusters and _gathers(shape, plan, columns, num_multiprocessors))
            load = _Load(num_seqs, columns, max_len, resident, num_multiprocessors)
            tokens = (min(num_seqs * max_len, int(num_tokens * times)) for times in costs.lengths)
            time = sum(_estimate(shape, plan, load, each, costs) for each in tokens)
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


@dataclass(frozen=True, slots=True)
class _Load:
    """What is to be done, and where."""

    num_seqs: int
    columns: int
    """KV heads of all sequences, and thread blocks that share the heads of one."""
    max_len: int
    resident: int
    num_multiprocessors: int

    def thread_blocks(self, plan: SplitPlan, num_tokens: int) -> int:
        """That have something to do; of shared out sequences all."""
        most = plan.num_splits * self.columns
        if plan.is_even:
            return most
        return max(self.columns, -(-most * num_tokens // max(1, self.num_seqs * self.max_len)))

    def tiles(self, plan: SplitPlan, num_tokens: int) -> int:
        """Of a thread block."""
        if not plan.is_even:
            return plan.tiles_per_split
        each = -(-num_tokens // (self.num_seqs * TILE_TOKENS))
        return max(plan.tiles_per_split, -(-each // plan.num_splits))


def _estimate(shape: DecodeShape, plan: SplitPlan, load: _Load, num_tokens: int, costs: Costs) -> float:
    """Microseconds: a launch, waves of thread blocks that wait for tile after tile, and the time of the memory."""
    num_thread_blocks = load.thread_blocks(plan, num_tokens)
    waves = -(-num_thread_blocks // (load.resident * load.num_multiprocessors))
    turns = -(-load.tiles(plan, num_tokens) // plan.num_warps)
    on_one = min(load.resident, -(-num_thread_blocks // load.num_multiprocessors))
    crowd = on_one * plan.num_warps * shape.head_size * shape.element_bytes / 128
    turn = costs.turn * (1 + costs.crowding * crowd)
    waiting = waves * costs.wave + turn * (waves * turns - costs.hidden_turns)
    num_bytes = 2 * shape.element_bytes * num_tokens * shape.num_kv_heads * shape.row_blocks * shape.head_size
    reading = num_bytes / (1e6 * costs.terabytes_s)
    both = float((waiting**costs.power + reading**costs.power) ** (1 / costs.power))
    return costs.launch + _merging(shape, plan, on_one, costs) + both


def _merging(shape: DecodeShape, plan: SplitPlan, on_one: int, costs: Costs) -> float:
    if plan.num_splits == 1:
        return 0.0
    if not plan.gathers:
        return costs.merging + costs.merging_part * plan.num_splits
    rounds = -(-shape.rows * shape.head_size // (4 * 32 * plan.num_warps))
    each = costs.gathering_part * plan.num_splits + costs.gathering_round * rounds
    return costs.gathering + each + costs.gathering_block * on_one


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
    columns = num_seqs * shape.num_kv_heads * shape.row_blocks
    if tiles <= SHORT_TILES and columns >= 2 * num_multiprocessors:
        return SplitPlan(OWN_WARPS, tiles, 1)
    return split_for(shape, num_seqs, max_own_len, num_seqs * max_own_len, num_multiprocessors, costs)
