"""Findable blocks by some key, of which nearly all have one block.

There are two keys to every block in the cache, hence hundreds of thousands on a large device. A dict for each would
take more memory than all else that is known of a block, and time: to make them, and to search them for garbage.
"""

from collections.abc import Iterator

import msgspec


class CachedBlock(msgspec.Struct, frozen=True, gc=False):
    """What is known of one findable block."""

    block_id: int
    block_hash: bytes
    parent: bytes
    token_ids: tuple[int, ...]


class BlockIndex:
    """key -> the blocks that have it, in the order in which they came."""

    def __init__(self) -> None:
        self._found: dict[bytes, CachedBlock | dict[int, CachedBlock]] = {}

    def add(self, key: bytes, block: CachedBlock) -> None:
        """One more block for the key; it does not have it yet."""
        there = self._found.get(key)
        if there is None:
            self._found[key] = block
        elif isinstance(there, CachedBlock):
            self._found[key] = {there.block_id: there, block.block_id: block}
        else:
            there[block.block_id] = block

    def remove(self, key: bytes, block: CachedBlock) -> None:
        """The key has this block, and loses it."""
        there = self._found[key]
        if not isinstance(there, CachedBlock):
            del there[block.block_id]
            if there:
                return
        del self._found[key]

    def newest_first(self, key: bytes) -> Iterator[CachedBlock]:
        """The key's blocks; nothing may change meanwhile."""
        there = self._found.get(key)
        if isinstance(there, CachedBlock):
            yield there
        elif there is not None:
            yield from reversed(there.values())
