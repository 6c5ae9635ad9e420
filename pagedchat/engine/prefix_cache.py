"""Finding blocks by what is in them.

A full block is known by the hash of its tokens chained to the hash of the block before it, so that one hash names
the whole prefix up to and including the block (as in vLLM's automatic prefix caching). Hashes are 128-bit BLAKE2b:
the same tokens have the same hash in every process, and two prefixes with one hash will not be met.

For a match that ends inside a block, blocks are also indexed by their parent's hash and their first token; and to
tell what is cached where a match ends, by their parent's hash alone.
The cache knows tokens and block ids only; who holds a block, and when it is evicted, is decided elsewhere.
"""

from array import array
from collections.abc import KeysView
from collections.abc import Sequence as TokenIds
from hashlib import blake2b
from itertools import islice

from pagedchat.engine.block_index import BlockIndex, CachedBlock

ROOT = b""
"""The parent hash of a first block."""

_MAX_HEADS = 32
"""How many blocks with the same parent and first token are compared at most (the newest)."""


def hash_block(parent: bytes, token_ids: TokenIds[int]) -> bytes:
    """16 bytes naming these tokens after that prefix."""
    return hash_bytes(parent, array("I", token_ids).tobytes())


def hash_bytes(parent: bytes, tokens: bytes) -> bytes:
    """The same for tokens that are laid out already: 32-bit numbers, one after the other."""
    return blake2b(parent + tokens, digest_size=16).digest()


class PrefixCache:
    """hash -> block, at most one block a hash."""

    def __init__(self) -> None:
        self._by_hash: dict[bytes, CachedBlock] = {}
        self._by_head = BlockIndex()
        self._by_parent = BlockIndex()
        self._by_block: dict[int, CachedBlock] = {}

    def __len__(self) -> int:
        return len(self._by_block)

    def __contains__(self, block_id: int) -> bool:
        """Whether the block is findable."""
        return block_id in self._by_block

    @property
    def block_ids(self) -> KeysView[int]:
        """All findable blocks; the view follows changes."""
        return self._by_block.keys()

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


def _head(parent: bytes, token_id: int) -> bytes:
    """Names a beginning: a parent is followed by this token."""
    return parent + token_id.to_bytes(4, "little")


def _common_length(a: TokenIds[int], b: TokenIds[int]) -> int:
    for index, (left, right) in enumerate(zip(a, b, strict=False)):
        if left != right:
            return index
    return min(len(a), len(b))
