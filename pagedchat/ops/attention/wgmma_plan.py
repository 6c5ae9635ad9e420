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
    64: WgmmaTile(consumers=3, keys=128, stages=2),
    80: WgmmaTile(consumers=2, keys=128),
    96: WgmmaTile(consumers=2, keys=128),
    112: WgmmaTile(consumers=2, keys=128),
    128: WgmmaTile(consumers=2, keys=128),
    256: WgmmaTile(consumers=2, keys=64),
}
"""By head size; the fastest on an H200."""
TILE_OF_FINISHED_SCORES = {64: WgmmaTile(consumers=2, keys=128)}
"""With soft cap or ALiBi, where the registers of the other tile do not hold them."""


def choose_tile(head_size: int, finishes_scores: bool) -> WgmmaTile:
    """The tile for a head size of `TILES`.

    Args:
        head_size: of keys and values.
        finishes_scores: whether something is done to the scores: soft cap or ALiBi.
    """
    tile = TILE_OF_FINISHED_SCORES.get(head_size) if finishes_scores else None
    return tile or TILES[head_size]


def max_items(tile: WgmmaTile, num_rows: int, num_seqs: int) -> int:
    """Tiles of all sequences for one KV head; not fewer than any lengths of the same sum need.

    Args:
        tile: rows of a thread block.
        num_rows: heads of a group times tokens of the batch.
        num_seqs: sequences.
    """
    return num_rows // tile.rows + num_seqs
