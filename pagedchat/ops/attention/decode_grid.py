"""The grid of a decode kernel, and what it is made for. Arithmetic only."""

from dataclasses import dataclass

TILE_TOKENS = 32
"""Tokens a warp attends to at a time: `TILE_TOKENS` of kernels/attention/decode_tiles.cuh."""
NUM_WARPS = (2, 4, 8)
"""Sizes of thread blocks: many small ones for large batches, few large ones for small batches."""
BYTE_WARPS = 12
"""Of a multiprocessor that attends to bytes, with heads of 80 to 128: their tiles take fewer registers. Also of a
thread block there, where a multiprocessor has one and groups are no larger than `BYTE_GROUP`."""
BYTE_GROUP = 4
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

    def columns(self, num_seqs: int) -> int:
        """Thread blocks without a split: of all KV heads of so many sequences, and of large groups."""
        return num_seqs * self.num_kv_heads * self.row_blocks


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
