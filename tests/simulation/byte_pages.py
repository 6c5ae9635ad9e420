"""Pages of one byte an element beside a symbolic cache: written, copied, swapped and read by the same code as a
model's, so that a scale that stays behind when its block moves is found. Does not know what moves blocks, or why.
"""

import torch

from pagedchat.engine.output import BlockOp
from pagedchat.ops.cache.byte_cache import DTYPES, dequantised, quantised
from pagedchat.ops.cache.byte_kinds import CacheKind
from pagedchat.runtime.attention.backend import AttentionBatch, CacheShape
from pagedchat.runtime.attention.byte_blocks import ByteBlocks
from pagedchat.runtime.attention.torch_backend import TorchAttention

_WIDTH = 16
_DIGITS = 3 * torch.arange(_WIDTH)


class BytePages:
    """One layer with one head, whose numbers follow from the prefix.

    Args:
        kind: what an element is.
        num_blocks, block_size, num_host_blocks: as the symbolic cache has them.
    """

    def __init__(self, kind: CacheKind, num_blocks: int, block_size: int, num_host_blocks: int) -> None:
        self._shape = CacheShape(1, block_size, 1, 1, _WIDTH, torch.float32, kind)
        self._pages = TorchAttention(self._shape, num_blocks, num_host_blocks, torch.device("cpu"))

    def move(self, op: BlockOp) -> None:
        {"copy": self._pages.copy_blocks, "swap_in": self._pages.swap_in, "swap_out": self._pages.swap_out}[
            op.kind
        ]([op.src], [op.dst])

    def write(self, block_table: list[int], start: int, states: list[int]) -> None:
        """Fingerprints of tokens from position `start` on."""
        rows = _rows(states)
        self._looked_into(block_table, start, start + len(states)).write(self._pages.layers[0], rows, -rows)

    def check(self, block_table: list[int], states: list[int]) -> None:
        """All of a sequence's tokens are what was written for them."""
        near = self._looked_into(block_table, 0, len(states))
        wanted = dequantised(*quantised(_rows(states), DTYPES[self._kind]), torch.float32)
        for rows, sign in zip(near.newest(near.read(self._pages.layers[0])), (1, -1), strict=True):
            assert torch.equal(rows, sign * wanted), f"numbers of another block in {block_table}"

    @property
    def _kind(self) -> CacheKind:
        assert self._shape.kind is not None
        return self._shape.kind

    def _looked_into(self, block_table: list[int], start: int, end: int) -> ByteBlocks:
        size = self._shape.block_size
        slots = [block_table[place // size] * size + place % size for place in range(start, end)]
        batch = AttentionBatch([0], 0, [end - start], [end], [block_table], torch.tensor(slots))
        return ByteBlocks.of(batch, self._shape, torch.device("cpu"))


def _rows(states: list[int]) -> torch.Tensor:
    """`[len(states), 1, _WIDTH]`: digits of three bits, as large as a fingerprint says."""
    numbers = torch.tensor(states)[:, None]
    digits = (numbers >> _DIGITS & 7).float() - 3.5
    return (digits * torch.exp2((numbers % 13).float() - 6))[:, None]
