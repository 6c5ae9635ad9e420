"""Which models a whole decode step fits into one launch of, and how it is cut. Arithmetic only."""

from dataclasses import dataclass, replace
from functools import cache

from pagedchat.jit.kernel_file import Constants
from pagedchat.ops.common.decode_shape import DecodeShape

MAX_TOKENS = 4
"""Of a launch: a product has columns for the even and the odd words of so many."""
MAX_SCREENED = 2
"""Of a launch that screens the vocabulary: a product has columns for the digits of so many."""
MAX_LAYERS = 32
"""Whose tensors the kernel has places for."""
HEAD_SIZE = 64
"""Of keys and values, the only one that the kernel has code for."""
UNIT = 8
"""Rows of a product that go to a thread block together, as in kernels/whole_step/persistent_decode.cu."""
STEP = 32
"""Inner elements that the lanes of a row hold at a time."""
_MAX_COPIES, _FEW_COPIES = 5, 3
"""Of what a thread block publishes for all others: of up to two tokens, and of more."""
TILE_ROWS = 16
"""Rows of the vocabulary at a time."""
QUANTIZED_ROWS = 32
"""Rows of the quantized head at a time; see `screened_head`."""
MAX_TILES = 8
"""Of the vocabulary, on their way to a thread block."""
TILE_TOKENS = 32
"""Cached tokens that a warp attends to at a time."""
_LAYER_BYTES = 12 * 8
_PAD = 32
"""Elements between rows in shared memory."""
_SLACK_BYTES = 2048
"""What alignment and small things take."""
_MAX_SPLITS = 3
_BLOCK_SIZES = (8, 16, 32)
_WARPS = (12, 8, 6, 4)
"""Of a thread block, the best first."""
CLUSTER = 4
"""Thread blocks of a cluster that has a KV head."""
CLUSTER_SHARES = 2
"""Of those, how many attend."""
ONE_TURN = 12 * TILE_TOKENS
"""Cached tokens that a thread block of 12 warps attends to in one turn."""
CLUSTER_TURN = CLUSTER_SHARES * ONE_TURN
"""The same of a cluster, which takes no second turn."""
_MAX_CLUSTER_UNITS = 6
"""Of queries, keys and values of a thread block in a cluster: their weights wait in registers."""


@dataclass(frozen=True, slots=True)
class PersistentShape(DecodeShape):
    """A model, as the kernel sees it."""

    gated: bool

    @property
    def constants(self) -> Constants:
        """For the compiler."""
        return {**self.sizes_as_constants, "GATED": int(self.gated)}


@dataclass(frozen=True, slots=True)
class PersistentPlan:
    """The launch."""

    num_thread_blocks: int
    num_warps: int
    num_splits: int
    """Thread blocks that share the context of a token and KV head."""
    num_columns: int
    """Thread blocks that attend; with clusters those that have a head."""
    num_tiles: int = 2
    """Of the vocabulary, in the shared memory of a thread block at a time."""
    cluster: int = 1
    """Thread blocks of a cluster; 1: without clusters."""
    screened_tiles: int = 0
    """Of the quantized head, that a thread block reads; 0: it reads the vocabulary."""
    seats: int = 1
    """Tokens whose context a thread block has, each with as many of its warps."""

    @property
    def num_threads(self) -> int:
        """Of a thread block, those that compute; one more warp copies weights."""
        return 32 * self.num_warps

    @property
    def constants(self) -> Constants:
        """For the compiler."""
        return {
            "SPLITS": self.num_splits,
            "CLUSTER": self.cluster,
            "SEATS": self.seats,
            "NUM_BLOCKS": self.num_thread_blocks,
            "NUM_WARPS": self.num_warps,
            "RING": self.num_tiles,
            "SCREENED": int(self.screened_tiles > 0),
            "SCREENED_TILES": max(self.screened_tiles, 1),
        }

    def qkv_units(self, shape: PersistentShape) -> int:
        """Units of queries, keys and values that a thread block makes, at most."""
        if self.cluster > 1:
            return -(-(shape.group_size + 2) * shape.head_size // UNIT // self.cluster)
        return -(-(shape.qkv_rows // UNIT) // (self.num_thread_blocks - self.num_columns))

    def up_units(self, shape: PersistentShape) -> int:
        """Units of the middle that a thread block makes, at most; a gate is next to its value."""
        return -(-(shape.middle // UNIT) // self.num_thread_blocks) * (2 if shape.gated else 1)

    def result_rows(self, shape: PersistentShape) -> int:
        """Rows that a thread block makes behind a norm, at most."""
        return UNIT * max(self.qkv_units(shape), self.up_units(shape))

    def published_elements(self, shape: PersistentShape, num_tokens: int) -> int:
        """Elements that the numbers of a layer take in memory, as `Published` in the kernel lays them out."""
        copies = _MAX_COPIES if num_tokens <= 2 else _FEW_COPIES
        attended = self.num_splits * (shape.attended + -(-shape.num_heads // 4) * 4 * 2)
        return num_tokens * (shape.qkv_rows + copies * (attended + shape.middle + 2 * shape.hidden))

    def shared_bytes(self, shape: PersistentShape, num_tokens: int) -> int:
        """Shared memory of a thread block, as `Shared` in the kernel lays it out, rounded up."""
        weights = max(self._slot_bytes(shape), self.num_tiles * self._tile_bytes(shape))
        return weights + self._other_bytes(shape, num_tokens)

    def with_tiles(self, shape: PersistentShape, num_tokens: int, shared_limit: int) -> "PersistentPlan":
        """The same with as many tiles of the vocabulary on their way as have room, at least where the slots are."""
        room = max(shared_limit - self._other_bytes(shape, num_tokens), self._slot_bytes(shape))
        count = min(MAX_TILES, room // self._tile_bytes(shape))
        return replace(self, num_tiles=max(count // 2 * 2, 2))  # even: for two teams of warps at least

    def screened(
        self, shape: PersistentShape, num_tokens: int, vocab_size: int, shared_limit: int
    ) -> "PersistentPlan | None":
        """The same for a step that screens the vocabulary by its quantized head; None where that does not fit, and
        for more than `MAX_SCREENED` tokens."""
        if num_tokens > MAX_SCREENED:
            return None
        tiles = -(-vocab_size // (QUANTIZED_ROWS * self.num_thread_blocks))
        plan = replace(self, screened_tiles=tiles).with_tiles(shape, num_tokens, shared_limit)
        return plan if plan.shared_bytes(shape, num_tokens) <= shared_limit else None

    def _tile_bytes(self, shape: PersistentShape) -> int:
        return quantized_tile_bytes(shape.hidden) if self.screened_tiles else 2 * TILE_ROWS * shape.hidden

    def _slot_bytes(self, shape: PersistentShape) -> int:
        """What weights of the layers take."""
        results = UNIT * (self.qkv_units(shape) + self.up_units(shape))
        into = 2 * results * (shape.hidden + _PAD) + 2 * 2 * shape.hidden + 8 * results
        return into + 2 * UNIT * (shape.attended + shape.middle + 2 * _PAD + 2) + _SLACK_BYTES // 2

    def _other_bytes(self, shape: PersistentShape, num_tokens: int) -> int:
        warps, group = self.num_warps, shape.group_size
        segment = shape.hidden // warps
        sums = max(12 * (self.result_rows(shape) + 4), 8 * QUANTIZED_ROWS if self.screened_tiles else 0)
        of_warp = (sums + 24 + 8 * TILE_ROWS) * num_tokens
        of_warp += 2 * num_tokens * (segment + _PAD) + group * (4 * shape.head_size + 8 + 80)
        others = _LAYER_BYTES * MAX_LAYERS + (2 * group + 4) * shape.head_size * self.seats + 8 * num_tokens
        others += group * (4 * shape.head_size + 8)  # of a share of the context that another thread block has
        return warps * of_warp + others + _SLACK_BYTES // 2 + self._screening_bytes(shape, num_tokens)

    def _screening_bytes(self, shape: PersistentShape, num_tokens: int) -> int:
        """As `Screening` in the kernel lays it out."""
        if self.screened_tiles == 0:
            return 0
        of_token = 3 * (shape.hidden + _PAD) + 4 * self.screened_tiles * QUANTIZED_ROWS
        return num_tokens * of_token + 2 * self.screened_tiles * QUANTIZED_ROWS + _SLACK_BYTES // 8


def quantized_tile_bytes(hidden: int) -> int:
    """Of a tile of the quantized head, with two numbers of 16 bits for each row."""
    return QUANTIZED_ROWS * (hidden + 4)


@cache
def plan_persistent(
    shape: PersistentShape, num_tokens: int, context_len: int, num_multiprocessors: int, shared_limit: int
) -> PersistentPlan | None:
    """A launch with one thread block for every multiprocessor; None where a layer does not fit into shared memory.

    See `plan_clustered` for one that is quicker.

    Args:
        shape: of the model.
        num_tokens: of the launch.
        context_len: of its longest sequence.
        num_multiprocessors: of the GPU.
        shared_limit: bytes of shared memory that a thread block may have.
    """
    if missing_code(shape) or num_tokens > MAX_TOKENS or missing_blocks(shape, num_tokens, num_multiprocessors):
        return None
    seats = _seats(shape, num_tokens, num_multiprocessors)
    columns = num_tokens // seats * shape.num_kv_heads
    spare = num_multiprocessors - shape.hidden // UNIT
    num_warps = next(warps for warps in _WARPS if _divides(shape, warps))
    if num_warps % seats or shape.group_size > num_warps // seats:
        return None  # a warp for each query head
    most = min(_MAX_SPLITS, spare // columns)
    # A second turn of the warps takes as long as putting splits together.
    splits = 1 if context_len <= num_warps // seats * TILE_TOKENS * 4 // 3 else most
    plan = PersistentPlan(num_multiprocessors, num_warps, splits, splits * columns, seats=seats)
    plan = plan.with_tiles(shape, num_tokens, shared_limit)
    results = plan.result_rows(shape)
    fits = plan.shared_bytes(shape, num_tokens) <= shared_limit and results * num_tokens <= plan.num_threads
    return plan if fits and results >= TILE_ROWS else None


@cache
def plan_clustered(
    shape: PersistentShape, num_tokens: int, context_len: int, num_multiprocessors: int, shared_limit: int
) -> PersistentPlan | None:
    """A launch in clusters, each of which has a head; None where there is no room for it or nothing to be gained.

    Some multiprocessors have too few neighbours for a cluster; ten of eleven are taken to have enough. Whether so
    many clusters run at a time is for the GPU to say (`PersistentDecode.fits_at_once`).

    Args are those of `plan_persistent`.
    """
    num_blocks = num_multiprocessors * 10 // 11 // CLUSTER * CLUSTER
    simple = plan_persistent(shape, num_tokens, TILE_TOKENS, num_multiprocessors, shared_limit)
    if simple is None or num_tokens > 1 or CLUSTER * shape.num_kv_heads > num_blocks:
        return None
    plan = replace(simple, num_thread_blocks=num_blocks, num_columns=CLUSTER * shape.num_kv_heads, cluster=CLUSTER)
    attending = CLUSTER_SHARES * shape.num_kv_heads
    if shape.hidden // UNIT > num_blocks - attending or plan.qkv_units(shape) > _MAX_CLUSTER_UNITS:
        return None
    plan = plan.with_tiles(shape, num_tokens, shared_limit)
    one_turn = context_len <= CLUSTER_SHARES * plan.num_warps * TILE_TOKENS
    fits = plan.shared_bytes(shape, num_tokens) <= shared_limit and plan.result_rows(shape) <= plan.num_threads
    return plan if fits and one_turn else None


def missing_code(shape: PersistentShape) -> str:
    """Why the kernel has no code for such sizes, in words that go after "since"; empty if it has."""
    if shape.head_size != HEAD_SIZE:
        return f"its heads are {shape.head_size} wide and the kernel is for {HEAD_SIZE}"
    if shape.group_size > UNIT:
        return f"{shape.group_size} query heads share a KV head and the kernel has room for {UNIT}"
    if shape.block_size not in _BLOCK_SIZES:
        return f"blocks have {shape.block_size} slots and the kernel is for {', '.join(map(str, _BLOCK_SIZES))}"
    widths = f"{shape.hidden:,}, {shape.middle:,} and {shape.attended:,}"
    rounds = any(shape.hidden % (warps * STEP) == 0 for warps in (12, 8, 6)) and shape.middle % UNIT == 0
    if not rounds or not any(_divides(shape, warps) for warps in _WARPS):
        return f"no number of warps shares out rows of {widths} evenly and in parts that are narrow enough"
    return ""


def missing_blocks(shape: PersistentShape, num_tokens: int, num_multiprocessors: int) -> str:
    """Why there are too few multiprocessors for a thread block each, likewise."""
    producers, columns = shape.hidden // UNIT, num_tokens * shape.num_kv_heads
    columns //= _seats(shape, num_tokens, num_multiprocessors)
    if producers + columns <= num_multiprocessors:  # every unit of the residual stream has a producer
        return ""
    return (
        f"it takes {producers} thread blocks for rows of {shape.hidden:,} and {columns} for attention, "
        f"and the GPU has {num_multiprocessors} multiprocessors"
    )


def _seats(shape: PersistentShape, num_tokens: int, num_multiprocessors: int) -> int:
    """Two tokens share a thread block where there are too few for one each, and pairs of tokens."""
    room = num_multiprocessors - shape.hidden // UNIT
    return 2 if num_tokens * shape.num_kv_heads > room and num_tokens == MAX_TOKENS else 1


def _divides(shape: PersistentShape, num_warps: int) -> bool:
    widths = (shape.hidden, shape.middle, shape.attended)
    return all(width % (STEP * num_warps) == 0 and width // num_warps <= 256 for width in widths)
