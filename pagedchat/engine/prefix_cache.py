"""Finding blocks by what is in them.

A full block is known by its hash (`block_hashes`). For a match that ends inside a block, blocks are also indexed by
their parent's hash and their first token; and to tell what is cached where a match ends, by their parent's hash
alone. The cache knows tokens and block ids only; who holds a block, and when it is evicted, is decided elsewhere.
"""

from collections.abc import Iterator
from collections.abc import Sequence as TokenIds
from itertools import islice

import msgspec

_MAX_HEADS = 32
"""How many blocks with the same parent and first token are compared at most (the newest)."""


class CachedBlock(msgspec.Struct, frozen=True, gc=False):
    """What is known of one findable block."""

    block_id: int
    block_hash: bytes
    parent: bytes
    token_ids: tuple[int, ...]


class PrefixCache:
    """hash -> block, at most one block a hash."""

    def __init__(self) -> None:
        self._by_hash: dict[bytes, CachedBlock] = {}
        self._by_head = BlockIndex()
        self._by_parent = BlockIndex()
        self._by_block: dict[int, CachedBlock] = {}
        self.block_ids = self._by_block.keys()
        """All findable blocks; the view follows changes."""

    def __len__(self) -> int:
        return len(self._by_block)

    def __contains__(self, block_id: int) -> bool:
        """Whether the block is findable."""
        return block_id in self._by_block

    def entries(self) -> list[CachedBlock]:
        """All findable blocks."""
        return list(self._by_block.values())

    def find(self, block_hash: bytes) -> int | None:
        """The block with this hash."""
        entry = self._by_hash.get(block_hash)
        return None if entry is None else entry.block_id

    def entry(self, block_id: int) -> CachedBlock | None:
        """What is known of this block, if it is findable."""
        return self._by_block.get(block_id)

    def newest_after(self, parent: bytes) -> CachedBlock | None:
        """Of the blocks that come after `parent`, the one that became findable last."""
        return next(self._by_parent.newest_first(parent), None)

    def find_head(self, parent: bytes, token_ids: TokenIds[int]) -> tuple[int, int] | None:
        """The block after `parent` that agrees with `token_ids` for longest.

        Returns:
            `(block_id, number of agreeing tokens)`, the number at least 1; `None` if no block starts like that.
        """
        if not token_ids:
            return None
        best: tuple[int, int] | None = None
        for entry in islice(self._by_head.newest_first(_head(parent, token_ids[0])), _MAX_HEADS):
            length = _common_length(entry.token_ids, token_ids)
            if best is None or length > best[1]:
                best = (entry.block_id, length)
        return best

    def add(self, block_id: int, block_hash: bytes, parent: bytes, token_ids: TokenIds[int]) -> bool:
        """Make a full block findable.

        Returns:
            False if another block has this hash already; that one stays the one to be found.
        """
        if block_hash in self._by_hash:
            return False
        entry = CachedBlock(block_id, block_hash, parent, tuple(token_ids))
        self._by_hash[block_hash] = self._by_block[block_id] = entry
        self._by_head.add(_head(parent, entry.token_ids[0]), entry)
        self._by_parent.add(parent, entry)
        return True

    def remove(self, block_id: int) -> None:
        """Forget a block that was findable."""
        entry = self._by_block.pop(block_id)
        del self._by_hash[entry.block_hash]
        self._by_head.remove(_head(entry.parent, entry.token_ids[0]), entry)
        self._by_parent.remove(entry.parent, entry)


class BlockIndex:
    """key -> the blocks that have it, in the order in which they came; nearly every key has one.

    There are two keys to every block in the cache, hence hundreds of thousands on a large device. A dict for each
    would take more memory than all else that is known of a block, and time: to make them, and to search them for
    garbage.
    """

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


def _head(parent: bytes, token_id: int) -> bytes:
    """Names a beginning: a parent is followed by this token."""
    return parent + token_id.to_bytes(4, "little")


def _common_length(a: TokenIds[int], b: TokenIds[int]) -> int:
    for index, (left, right) in enumerate(zip(a, b, strict=False)):
        if left != right:
            return index
    return min(len(a), len(b))
