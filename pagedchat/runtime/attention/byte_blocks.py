"""The blocks of a cache of one byte an element that a step looks into, in torch: new tokens are brought into bytes,
and the blocks, each once, into the type of the rows, under ids of their own from 0 on. Knows no attention.
"""

from dataclasses import dataclass, replace
from typing import Self

import torch

from pagedchat.ops.cache.byte_cache import dequantised, quantised, scales_of
from pagedchat.runtime.attention.backend import AttentionBatch, CacheShape


@dataclass(frozen=True, slots=True)
class ByteBlocks:
    """Of one step; the same in all layers."""

    batch: AttentionBatch
    """The step over the blocks that `read` returns."""
    shape: CacheShape
    ids: torch.Tensor
    """`[num_read]`, int64: the blocks that are looked into."""
    slots: torch.Tensor
    """`[num_tokens]`, int64: where new tokens go in the cache."""

    @classmethod
    def of(cls, batch: AttentionBatch, shape: CacheShape, device: torch.device) -> Self:
        """Find the blocks of a step, up to each sequence's last token."""
        size = shape.block_size
        tables = [
            table[: -(-length // size)] for table, length in zip(batch.block_tables, batch.seq_lens, strict=True)
        ]
        places = {block: place for place, block in enumerate(dict.fromkeys(b for table in tables for b in table))}
        near = replace(
            batch,
            block_tables=[[places[block] for block in table] for table in tables],
            slot_mapping=_new_slots(batch, tables, places, size).to(device),
        )
        return cls(near, shape, torch.tensor(list(places), dtype=torch.int64, device=device), batch.slot_mapping)

    def write(self, caches: tuple[torch.Tensor, torch.Tensor], key: torch.Tensor, value: torch.Tensor) -> None:
        """Put new tokens into a layer's cache.

        Args:
            caches: keys and values, `[num_blocks, block_size, num_kv_heads, head_dim]`, of bytes.
            key, value: `[num_tokens, num_kv_heads, head_dim]`.
        """
        size = self.shape.block_size
        blocks, offsets = self.slots // size, self.slots % size
        for cache, rows in zip(caches, (key, value), strict=True):
            elements, scales = quantised(rows, cache.dtype)
            cache.view(torch.uint8)[blocks, offsets] = elements.view(torch.uint8)
            self._scales(cache)[blocks, offsets] = scales

    def read(self, caches: tuple[torch.Tensor, torch.Tensor]) -> tuple[torch.Tensor, torch.Tensor]:
        """Keys and values of the blocks that are looked into, `[num_read, block_size, num_kv_heads, head_dim]`."""
        key, value = (self._near(cache) for cache in caches)
        return key, value

    def newest(self, near: tuple[torch.Tensor, torch.Tensor]) -> tuple[torch.Tensor, torch.Tensor]:
        """Keys and values of the new tokens, `[num_tokens, num_kv_heads, head_dim]`, as the cache has them.

        Args:
            near: from `read`, after `write`.
        """
        key, value = (part.flatten(0, 1)[self.batch.slot_mapping] for part in near)
        return key, value

    def _near(self, cache: torch.Tensor) -> torch.Tensor:
        elements = cache.view(torch.uint8)[self.ids].view(cache.dtype)
        return dequantised(elements, self._scales(cache)[self.ids], self.shape.dtype)

    def _scales(self, cache: torch.Tensor) -> torch.Tensor:
        return scales_of(cache, self.shape.block_size, self.shape.num_kv_heads)


def _new_slots(
    batch: AttentionBatch, tables: list[list[int]], places: dict[int, int], block_size: int
) -> torch.Tensor:
    """Where new tokens stand among the blocks that are read."""
    slots = [
        places[table[position // block_size]] * block_size + position % block_size
        for table, count, length in zip(tables, batch.query_lens, batch.seq_lens, strict=True)
        for position in range(length - count, length)
    ]
    return torch.tensor(slots, dtype=torch.int64)
