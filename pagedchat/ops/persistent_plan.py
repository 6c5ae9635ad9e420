"""Which models a whole decode step fits into one launch of, and how it is cut. Arithmetic only."""

from dataclasses import dataclass, replace
from functools import cache

MAX_TOKENS = 2
"""Of a launch: one warp has all results of a tile of the vocabulary."""
MAX_LAYERS = 32
"""Whose tensors the kernel has places for."""
UNIT = 8
"""Rows of a product that go to a thread block together, as in kernels/persistent_decode.cu."""
STEP = 32
"""Inner elements that the lanes of a row hold at a time."""
MAX_COPIES = 8
"""Of what a thread block publishes for all others."""
TILE_ROWS = 16
"""Rows of the vocabulary at a time."""
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


@dataclass(frozen=True, slots=True)
class PersistentShape:
    """A model, as the kernel sees it; every number is a constant of the compiled variant."""

    hidden: int
    middle: int
    num_heads: int
    num_kv_heads: int
    head_size: int
    block_size: int
    gated: bool

    @property
    def group_size(self) -> int:
        """Query heads of a KV head."""
        return self.num_heads // self.num_kv_heads

    @property
    def attended(self) -> int:
        """Width of all query heads."""
        return self.num_heads * self.head_size

    @property
    def qkv_rows(self) -> int:
        """Rows of the product that makes queries, keys and values."""
        return self.attended + 2 * self.num_kv_heads * self.head_size


@dataclass(frozen=True, slots=True)
class PersistentPlan:
    """The launch."""

    num_thread_blocks: int
    num_warps: int
    num_splits: int
    """Thread blocks that share the context of a token and KV head."""
    num_columns: int
    """Thread blocks that attend."""
    num_tiles: int = 2
    """Of the vocabulary, in the shared memory of a thread block at a time."""

    @property
    def num_threads(self) -> int:
        """Of a thread block, those that compute; one more warp copies weights."""
        return 32 * self.num_warps

    def result_rows(self, shape: PersistentShape) -> int:
        """Rows that a thread block makes behind a norm, at most."""
        qkv = -(-(shape.qkv_rows // UNIT) // (self.num_thread_blocks - self.num_columns))
        middle = -(-(shape.middle // UNIT) // self.num_thread_blocks)
        paired = 2 if shape.gated else 1  # a gate is next to its value
        return UNIT * paired * -(-max(qkv, middle * paired) // paired)

    def published_elements(self, shape: PersistentShape, num_tokens: int) -> int:
        """Elements that the numbers of a layer take in memory, as `Published` in the kernel lays them out."""
        results = self.result_rows(shape) * num_tokens
        copies = min(MAX_COPIES, self.num_warps // shape.group_size, self.num_threads // results)
        attended = self.num_splits * (shape.attended + -(-shape.num_heads // 4) * 4 * 2)
        return num_tokens * (shape.qkv_rows + copies * (attended + shape.middle + 2 * shape.hidden))

    def shared_bytes(self, shape: PersistentShape, num_tokens: int) -> int:
        """Shared memory of a thread block, as `Shared` in the kernel lays it out, rounded up."""
        weights = max(self._slot_bytes(shape), self.num_tiles * _tile_bytes(shape))
        return weights + self._other_bytes(shape, num_tokens)

    def with_tiles(self, shape: PersistentShape, num_tokens: int, shared_limit: int) -> "PersistentPlan":
        """The same with as many tiles of the vocabulary on their way as have room, at least where the slots are."""
        room = max(shared_limit - self._other_bytes(shape, num_tokens), self._slot_bytes(shape))
        count = min(MAX_TILES, room // _tile_bytes(shape))
        return replace(self, num_tiles=max(count // 2 * 2, 2))  # even: for two teams of warps at least

    def _slot_bytes(self, shape: PersistentShape) -> int:
        """What weights of the layers take."""
        results = self.result_rows(shape)
        into = 2 * results * (shape.hidden + _PAD) + 2 * shape.hidden + 8 * results
        return 2 * into + 2 * UNIT * (shape.attended + shape.middle + 2 * _PAD + 2) + _SLACK_BYTES // 2

    def _other_bytes(self, shape: PersistentShape, num_tokens: int) -> int:
        warps, group = self.num_warps, shape.group_size
        segment = max(shape.hidden, shape.middle, shape.attended) // warps
        of_warp = 12 * num_tokens * (self.result_rows(shape) + 4) + (24 + 8 * TILE_ROWS) * num_tokens
        of_warp += 2 * num_tokens * (segment + _PAD) + group * (4 * shape.head_size + 8 + 80)
        others = _LAYER_BYTES * MAX_LAYERS + (2 * group + 4) * shape.head_size + 8 * num_tokens
        return warps * of_warp + others + _SLACK_BYTES // 2


def _tile_bytes(shape: PersistentShape) -> int:
    return 2 * TILE_ROWS * shape.hidden


@cache
def plan_persistent(
    shape: PersistentShape, num_tokens: int, context_len: int, num_multiprocessors: int, shared_limit: int
) -> PersistentPlan | None:
    """A launch with one thread block for every multiprocessor; None where a layer does not fit into shared memory.

    Args:
        shape: of the model.
        num_tokens: of the launch.
        context_len: of its longest sequence.
        num_multiprocessors: of the GPU.
        shared_limit: bytes of shared memory that a thread block may have.
    """
    columns = num_tokens * shape.num_kv_heads
    spare = num_multiprocessors - shape.hidden // UNIT  # every unit of the residual stream has a producer
    num_warps = next((warps for warps in (12, 8, 6, 4) if _divides(shape, warps)), None)
    if num_warps is None or columns > spare or num_tokens > MAX_TOKENS or not _is_known(shape):
        return None
    most = min(_MAX_SPLITS, spare // columns)
    # A second turn of the warps takes as long as putting splits together.
    splits = 1 if context_len <= num_warps * TILE_TOKENS * 4 // 3 else most
    plan = PersistentPlan(num_multiprocessors, num_warps, splits, splits * columns)
    plan = plan.with_tiles(shape, num_tokens, shared_limit)
    results = plan.result_rows(shape)
    fits = plan.shared_bytes(shape, num_tokens) <= shared_limit and results * num_tokens <= plan.num_threads
    return plan if fits and results >= TILE_ROWS else None


def _is_known(shape: PersistentShape) -> bool:
    """Whether the kernel has code for such sizes, whatever its warps."""
    return (
        shape.group_size <= UNIT
        and shape.head_size == 64
        and shape.block_size in (8, 16, 32)
        and any(shape.hidden % (n * STEP) == 0 for n in (12, 8, 6))
        and shape.middle % UNIT == 0
    )


def _divides(shape: PersistentShape, num_warps: int) -> bool:
    widths = (shape.hidden, shape.middle, shape.attended)
    return all(width % (STEP * num_warps) == 0 and width // num_warps <= 256 for width in widths)
