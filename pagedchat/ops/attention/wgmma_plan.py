"""How `prefill_wgmma` cuts up its work: warpgroups and keys of a thread block. Arithmetic only."""

from dataclasses import dataclass

from pagedchat.jit.kernel_file import Constants

_ELEMENT_BYTES = 2


@dataclass(frozen=True, slots=True)
class WgmmaTile:
    """The compile-time constants of the kernel that its speed depends on."""

    consumers: int
    """Warpgroups that compute, 64 query rows each; one more fetches."""
    keys: int
    stages: int = 2
    """Tiles of keys, and of values, in shared memory."""

    @property
    def rows(self) -> int:
        """Query rows of a thread block: heads of a group times tokens."""
        return 64 * self.consumers

    @property
    def threads(self) -> int:
        """Of a thread block."""
        return 128 * (self.consumers + 1)

    @property
    def constants(self) -> Constants:
        """For the compiler."""
        return {"CONSUMERS": self.consumers, "TILE_KEYS": self.keys, "STAGES": self.stages}

    def shared_bytes(self, head_size: int) -> int:
        """`SHARED_BYTES` of the kernel: the queries, and `stages` tiles of keys and of values."""
        queries = head_size * (self.rows + 1) * _ELEMENT_BYTES
        return queries + 2 * self.stages * self.keys * head_size * _ELEMENT_BYTES


TILES = {
    64: (WgmmaTile(consumers=3, keys=128), WgmmaTile(consumers=2, keys=128), WgmmaTile(consumers=1, keys=128)),
    80: (WgmmaTile(consumers=2, keys=128),),
    96: (WgmmaTile(consumers=2, keys=128),),
    112: (WgmmaTile(consumers=2, keys=128),),
    128: (WgmmaTile(consumers=2, keys=128), WgmmaTile(consumers=1, keys=128)),
    256: (WgmmaTile(consumers=2, keys=64),),
}
"""By head size; the largest is the fastest on an H200 if there is work for all of it."""


def tiles_of(head_size: int, *, finishes_scores: bool) -> tuple[WgmmaTile, ...]:
    """The tiles for a head size of `TILES`, the largest first.

    Args:
        head_size: of keys and values.
        finishes_scores: whether something is done to the scores, soft cap or ALiBi: the registers of three
            warpgroups do not hold them.
    """
    return tuple(tile for tile in TILES[head_size] if tile.consumers < 3 or not finishes_scores)


def choose_tile(
    head_size: int, *, finishes_scores: bool, num_rows: int, num_kv_heads: int, num_multiprocessors: int
) -> WgmmaTile:
    """The largest tile of which every multiprocessor has one, or else the smallest.

    Args:
        head_size: of `TILES`.
        finishes_scores: see `tiles_of`.
        num_rows: heads of a group times tokens of the batch.
        num_kv_heads: each has all of them.
        num_multiprocessors: of the GPU.
    """
    tiles = tiles_of(head_size, finishes_scores=finishes_scores)
    enough = (tile for tile in tiles if num_rows // tile.rows * num_kv_heads >= num_multiprocessors)
    return next(enough, tiles[-1])


def max_items(tile: WgmmaTile, num_rows: int, num_seqs: int) -> int:
    """Tiles of all sequences for one KV head; not fewer than any lengths of the same sum need.

    Args:
        tile: rows of a thread block.
        num_rows: heads of a group times tokens of the batch.
        num_seqs: sequences.
    """
    return num_rows // tile.rows + num_seqs
