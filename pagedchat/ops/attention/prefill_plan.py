"""How `prefill_mma` cuts up its work: rows and keys of a thread block, and how often the keys are split.

Arithmetic only. The tiles were chosen by measuring on an H200; the shared memory is what bounds them elsewhere.
"""

from dataclasses import dataclass

from pagedchat.jit.kernel_file import Constants

PART_KEYS = 256
"""Of a part of the keys, where those are put together in one order: for rows that nothing else may change."""
MAX_PARTIAL_BYTES = 64 << 20
"""Of partial results in memory; with more of them a thread block walks through all parts of its rows."""
MIN_SPLIT_KEYS = 512
"""A thread block with fewer keys to walk costs more in merging than it saves, where there are more than"""
FEW_SPLITS, FEWEST_KEYS = 8, 64
"""so many parts, which are merged in one go; a tile of keys is the least of those."""
THREAD_BLOCKS = 2
"""For each multiprocessor."""
LONG_KEYS, MEDIUM_KEYS = 2048, 1024
"""Of so many keys few rows are worth splitting whatever their heads, and"""
NARROW_HEAD, FEW_THREAD_BLOCKS = 64, 16
"""of heads so wide, in so few thread blocks, from which a split makes more."""


@dataclass(frozen=True, slots=True)
class PrefillTile:
    """The compile-time constants of kernels/attention/prefill_mma.cu."""

    num_warps: int
    warp_rows: int
    """Query rows of a warp: 32 read each key half as often, 16 leave registers for wide heads."""
    keys: int
    stages: int = 2
    """Tiles of keys in shared memory: one in use, the others on their way."""
    min_thread_blocks: int = 1
    query_in_registers: bool = False

    @property
    def rows(self) -> int:
        """Query rows of a thread block."""
        return self.num_warps * self.warp_rows

    @property
    def constants(self) -> Constants:
        """For the compiler."""
        return {
            "NUM_WARPS": self.num_warps,
            "WARP_ROWS": self.warp_rows,
            "TILE_KEYS": self.keys,
            "STAGES": self.stages,
            "MIN_THREAD_BLOCKS": self.min_thread_blocks,
            "QUERY_IN_REGISTERS": int(self.query_in_registers),
        }

    def shared_bytes(self, head_size: int, block_size: int) -> int:
        """`QUERY_TILE_BYTES + STAGES * STAGE_BYTES` of the kernel."""
        octets = block_size // 8
        padding = 8 // octets if octets > 1 else 0  # rows of V
        stage = 2 * self.keys * (head_size + head_size + padding)
        return 2 * self.rows * head_size + self.stages * stage


WIDE, MOST_WIDE = PrefillTile(4, 32, 64), 128
"""The best tile, and the largest heads that it is for."""
NARROW, SMALL = PrefillTile(4, 16, 64), PrefillTile(4, 16, 32)
"""For chunks of few rows and where the wide one does not fit, and where that does not fit either."""
MERGE_THREADS = 128
"""Of a thread block of kernels/attention/prefill_merge.cu; each takes `MERGE_DIMS` dimensions of a row."""
MERGE_DIMS = 4


def choose_tile(head_size: int, block_size: int, num_rows: int, shared_limit: int) -> PrefillTile | None:
    """The tile for chunks of up to `num_rows` query rows; None where none fits into shared memory.

    Args:
        head_size: 64, 80, 96, 112, 128 or 256.
        block_size: token slots in a block.
        num_rows: heads of a group times tokens of the longest chunk.
        shared_limit: bytes that a thread block may have.
    """
    wide = [WIDE] if num_rows > NARROW.rows and head_size <= MOST_WIDE else []
    for tile in (*wide, NARROW, SMALL):
        if tile.shared_bytes(head_size, block_size) <= shared_limit:
            return tile
    return None


def choose_invariant_tile(head_size: int, block_size: int, shared_limit: int) -> PrefillTile | None:
    """The tile where numbers are not to depend on the chunks: the same for all of them; see `choose_tile`."""
    return choose_tile(head_size, block_size, 1, shared_limit)


def max_thread_blocks(tile: PrefillTile, num_rows: int, num_seqs: int) -> int:
    """Tiles of all sequences, for one KV head; not fewer than any lengths of the same sum need.

    Args:
        tile: rows of a thread block.
        num_rows: heads of a group times tokens of the batch.
        num_seqs: sequences.
    """
    return num_rows // tile.rows + num_seqs


def choose_splits(thread_blocks: int, max_keys: int, num_multiprocessors: int) -> int:
    """Thread blocks that share the keys of one tile of queries.

    Args:
        thread_blocks: without a split.
        max_keys: tokens that a query sees at most.
        num_multiprocessors: of the GPU.
    """
    wanted = THREAD_BLOCKS * num_multiprocessors // thread_blocks
    return max(1, min(wanted, max(max_keys // MIN_SPLIT_KEYS, min(FEW_SPLITS, max_keys // FEWEST_KEYS))))


def splits_pay(head_size: int, thread_blocks: int, max_keys: int, num_multiprocessors: int) -> bool:
    """Whether few rows that share keys out over the grid are done sooner than by `prefill_wgmma`, which does not.

    Args:
        head_size: of keys.
        thread_blocks, max_keys, num_multiprocessors: as for `choose_splits`.
    """
    if choose_splits(thread_blocks, max_keys, num_multiprocessors) < FEW_SPLITS:
        return False
    if max_keys > LONG_KEYS:
        return True
    return max_keys >= MEDIUM_KEYS and head_size <= NARROW_HEAD and thread_blocks <= FEW_THREAD_BLOCKS


def choose_parts(thread_blocks: int, max_keys: int, num_multiprocessors: int, part_bytes: int) -> int:
    """Thread blocks that share the parts of the keys of one tile of queries, one part each; or 1, which takes all.

    Either gives the same bits.

    Args:
        thread_blocks: without a split.
        max_keys: tokens of any sequence, at most.
        num_multiprocessors: of the GPU.
        part_bytes: that one part of all rows takes in memory.
    """
    parts = -(-max_keys // PART_KEYS)
    idle = thread_blocks < THREAD_BLOCKS * num_multiprocessors
    return parts if idle and parts > 1 and parts * part_bytes <= MAX_PARTIAL_BYTES else 1
