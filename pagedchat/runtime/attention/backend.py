"""What a step's attention needs to know, and what an attention backend must do. Knows no model and no scheduler."""

from dataclasses import dataclass, field
from typing import Protocol

import torch

from pagedchat.ops.cache.byte_cache import page_bytes
from pagedchat.ops.cache.byte_kinds import CacheKind
from pagedchat.runtime.attention.prefix_groups import PrefixGroup, SharingRule


@dataclass(frozen=True, slots=True)
class CacheShape:
    """What the KV cache of a model looks like, whatever order a backend keeps it in."""

    num_layers: int
    block_size: int
    num_heads: int
    """Query heads."""
    num_kv_heads: int
    head_dim: int
    dtype: torch.dtype
    """Of rows, and of what the cache holds where nothing else is said."""
    kind: CacheKind | None = None
    """What the cache holds instead: one byte an element, with scales."""

    @property
    def page_bytes(self) -> int:
        """Bytes of one block in one layer: K and V, scales included."""
        if self.kind is not None:
            return 2 * page_bytes(self.block_size, self.num_kv_heads, self.head_dim)
        return 2 * self.block_size * self.num_kv_heads * self.head_dim * self.dtype.itemsize

    @property
    def block_bytes(self) -> int:
        """Bytes of one block in all layers."""
        return self.num_layers * self.page_bytes


@dataclass(slots=True)
class AttentionBatch:
    """The batch of a step as attention sees it: tokens flattened, sequences with one token first.

    ::

        rows       | d0 | d1 | d2 |<--- chunk of s3 --->|<- chunk of s4 ->|
                   |<- decodes -->|<------------- prefills -------------->|
    """

    seq_ids: list[int]
    """Which sequences; none twice."""
    num_decodes: int
    """Sequences with one token each; they take the first rows."""
    query_lens: list[int]
    """Tokens of each sequence in this step."""
    seq_lens: list[int]
    """Tokens of each sequence up to the last one of this step."""
    block_tables: list[list[int]]
    """Block ids of each sequence, covering at least its `seq_lens`."""
    slot_mapping: torch.Tensor
    """`[num_tokens]`, int64, on the device: where each new token's K and V go."""
    prefix_groups: list[PrefixGroup] = field(default_factory=list)
    """Which decodes begin with the same blocks, covering all decodes in order; empty where sharing does not pay."""


class AttentionBackend(Protocol):
    """Owns the order of the cache in memory, and everything that reads or writes it."""

    shape: CacheShape
    num_blocks: int
    """Device blocks."""

    @property
    def sharing(self) -> SharingRule | None:
        """When decodes that begin with the same blocks are to come in groups; None if that is of no use."""
        ...

    def prepare_swapping(self) -> None:
        """There will be swaps: what they need is made ready in the background."""
        ...

    def begin(self, batch: AttentionBatch) -> None:
        """A step begins: all layers to come are of this batch."""
        ...

    def write(self, layer_idx: int, key: torch.Tensor, value: torch.Tensor) -> None:
        """Put the new tokens' K and V, `[num_tokens, num_kv_heads, head_dim]`, into their slots."""
        ...

    def attend(
        self,
        layer_idx: int,
        query: torch.Tensor,
        key: torch.Tensor,
        value: torch.Tensor,
        *,
        scale: float,
        sliding_window: int | None,
        cap: float | None,
        alibi_slopes: torch.Tensor | None = None,
        sinks: torch.Tensor | None = None,
    ) -> torch.Tensor:
        """Causal attention of every query over its sequence; `write` has been called with the same K and V.

        Args:
            layer_idx: which layer's cache.
            query: `[num_tokens, num_heads, head_dim]`.
            key, value: `[num_tokens, num_kv_heads, head_dim]`.
            scale: factor of the scores.
            sliding_window: a query sees this many tokens, itself included; None sees all.
            cap: soft cap of the scores.
            alibi_slopes: `[num_heads]`, float32: scores fall by this much for each token of distance (ALiBi).
            sinks: `[num_heads]`, float32: a score of each head that has no key and no value.

        Returns:
            `[num_tokens, num_heads, head_dim]`.
        """
        ...

    def copy_blocks(self, src: list[int], dst: list[int]) -> None:
        """Copy device block `src[i]` to device block `dst[i]`; all reads come before all writes."""
        ...

    def swap_out(self, src: list[int], dst: list[int]) -> None:
        """Copy device block `src[i]` to host block `dst[i]`.

        Moves are as if done in the order of the calls, before all that comes after them; they may still be under
        way when the call returns.
        """
        ...

    def swap_in(self, src: list[int], dst: list[int]) -> None:
        """Copy host block `src[i]` to device block `dst[i]`."""
        ...
