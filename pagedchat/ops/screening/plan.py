"""How the screening of a vocabulary is cut for a batch and a GPU. Arithmetic only.

The numbers are those of kernels/screening/bounds.cuh and screen_vocabulary.cu.
"""

from dataclasses import dataclass

UNIT_ROWS = 64
"""Of the vocabulary, which lie together."""
CHUNK = 128
"""Inner elements that are multiplied at a time."""
MAX_TOKENS = 64
MAX_WIDTH = 8192
COLUMNS = (8, 16, 32, 64)
"""Of tokens, that a batch may be filled up to."""
STAGES = 4
"""Of the ring: with three 64 rows take as long and fewer 5 % more, with five and six all the same."""
MAX_TOP_K = 128
"""Of rows that draw from few: beyond, rows that are left take longer to multiply than all of the vocabulary."""
LIST_CLUSTERS = (8, 4, 2)
"""Thread blocks that share a row of `list_screened`, see `list_cluster`."""
_PIECE = 8
"""Elements of 16 bytes."""
_TILE_UNITS = 4
_KEPT_BYTES = 4 << 10
"""Of shared memory, for what is no stage."""


@dataclass(frozen=True, slots=True)
class ScreenPlan:
    """For batches of up to `columns` tokens."""

    columns: int
    """Of tokens."""
    stages: int

    @property
    def constants(self) -> dict[str, int]:
        """What `screen_vocabulary` is compiled for."""
        return {"TOKENS": self.columns, "STAGES": self.stages}

    @property
    def shared_bytes(self) -> int:
        """Of a thread block of `screen_vocabulary`."""
        return self.stages * _stage_bytes(self.columns) + _KEPT_BYTES


def plan_screen(hidden: int, num_tokens: int, shared_limit: int) -> ScreenPlan | None:
    """How a vocabulary is screened; None where it cannot be.

    Args:
        hidden: width of its rows.
        num_tokens: of the batch.
        shared_limit: bytes of shared memory that a thread block may have.
    """
    if num_tokens > MAX_TOKENS or hidden > MAX_WIDTH or hidden % _PIECE:
        return None
    columns = next(each for each in COLUMNS if num_tokens <= each)
    stages = min(STAGES, (shared_limit - _KEPT_BYTES) // _stage_bytes(columns))
    return ScreenPlan(columns, stages) if stages > 1 else None


def list_cluster(num_rows: int) -> int:
    """Thread blocks that share a row of `list_screened`: as many as one GPU has room for at once."""
    return next(cluster for cluster in LIST_CLUSTERS if cluster * num_rows <= 2 * MAX_TOKENS)


def num_units(vocab_size: int) -> int:
    """Of a vocabulary, the last one filled up."""
    return -(-vocab_size // UNIT_ROWS)


def num_chunks(hidden: int) -> int:
    """Of a row, the last one filled up."""
    return -(-hidden // CHUNK)


def screen_bytes(vocab_size: int, hidden: int) -> int:
    """What the copy of a vocabulary takes."""
    return num_units(vocab_size) * UNIT_ROWS * (num_chunks(hidden) * CHUNK + 4 * 4)


def _stage_bytes(columns: int) -> int:
    return (_TILE_UNITS * UNIT_ROWS + 2 * columns) * CHUNK
