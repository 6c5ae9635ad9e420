"""Block events as the subscribers of vLLM's read them: names, fields, two encodings. Knows no engine and no socket.

A batch is an array: `[ts, events, data_parallel_rank]`. Its events are maps with their name under `"type"`, as vLLM
publishes them from 0.24 on, or arrays that begin with their name, as releases before did. Fields that a reader may
miss come last, so that an older reader of arrays finds all that it knows.
"""

from collections.abc import Mapping
from typing import NamedTuple

import msgspec

from pagedchat.config import KVEventsEncoding

BlockHash = int | bytes

_MEDIUM = "GPU"
"""What subscribers call the tier in which an engine computes, be it a CPU's memory."""
_GROUP = 0
_KIND = "full_attention"
"""Of the one group of layers that there is: no block is given up before its sequence."""


class BlockStored(msgspec.Struct, frozen=True, omit_defaults=True, tag=True, gc=False, kw_only=True):
    """Full blocks that can be found from now on; each is the parent of the next."""

    block_hashes: list[BlockHash]
    parent_block_hash: BlockHash | None
    """Of the block before the first one; None where that begins a prompt."""
    token_ids: list[int]
    """`block_size` for each block."""
    block_size: int
    lora_id: int | None
    medium: str | None
    lora_name: str | None
    extra_keys: list[None] | None = None
    """For each block what else than tokens its hash is made of."""
    group_idx: int | None = None
    kv_cache_spec_kind: str | None = None
    kv_cache_spec_sliding_window: int | None = None


class BlockRemoved(msgspec.Struct, frozen=True, omit_defaults=True, tag=True, gc=False, kw_only=True):
    """Blocks that cannot be found any more."""

    block_hashes: list[BlockHash]
    medium: str | None
    group_idx: int | None = None


class AllBlocksCleared(msgspec.Struct, frozen=True, omit_defaults=True, tag=True, gc=False, kw_only=True):
    """Nothing can be found: an engine begins."""


class _StoredArray(BlockStored, frozen=True, array_like=True, tag="BlockStored", kw_only=True):
    pass


class _RemovedArray(BlockRemoved, frozen=True, array_like=True, tag="BlockRemoved", kw_only=True):
    pass


class _ClearedArray(AllBlocksCleared, frozen=True, array_like=True, tag="AllBlocksCleared", kw_only=True):
    pass


BlockEvent = BlockStored | BlockRemoved | AllBlocksCleared


class EventBatch(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """What is published at once, in order."""

    ts: float
    """Seconds since 1970."""
    events: list[BlockEvent]
    data_parallel_rank: int


class Encoding(NamedTuple):
    """One way to write events down."""

    stored_type: type[BlockStored]
    removed_type: type[BlockRemoved]
    cleared_type: type[AllBlocksCleared]

    def stored(
        self, block_hashes: list[BlockHash], parent: BlockHash | None, token_ids: list[int], block_size: int
    ) -> BlockStored:
        """Blocks can be found."""
        return self.stored_type(
            block_hashes=block_hashes,
            parent_block_hash=parent,
            token_ids=token_ids,
            block_size=block_size,
            lora_id=None,
            medium=_MEDIUM,
            lora_name=None,
            extra_keys=[None] * len(block_hashes),
            group_idx=_GROUP,
            kv_cache_spec_kind=_KIND,
        )

    def removed(self, block_hashes: list[BlockHash]) -> BlockRemoved:
        """Blocks cannot be found any more."""
        return self.removed_type(block_hashes=block_hashes, medium=_MEDIUM, group_idx=_GROUP)

    def cleared(self) -> AllBlocksCleared:
        """Nothing can be found."""
        return self.cleared_type()


ENCODINGS: Mapping[KVEventsEncoding, Encoding] = {
    "map": Encoding(BlockStored, BlockRemoved, AllBlocksCleared),
    "array": Encoding(_StoredArray, _RemovedArray, _ClearedArray),
}

_encoder = msgspec.msgpack.Encoder()


def encode(ts: float, events: list[BlockEvent]) -> bytes:
    """The payload of a batch; there is one engine, whose rank is 0."""
    return _encoder.encode(EventBatch(ts, events, 0))
