"""The names of full blocks: hashes of their tokens, each chained to the hash of the block before it.

So one hash names the whole prefix up to and including its block (as in vLLM's automatic prefix caching). Hashes
are 128-bit BLAKE2b: the same tokens have the same hash in every process, and two prefixes with one hash will not be
met.

A hash says what would be in a block, not whether anybody has computed it. So it may be made as soon as the tokens
are known: while a device is busy, and not when somebody waits for a batch. Knows tokens only, no blocks.
"""

from array import array
from collections.abc import Sequence as TokenIds
from hashlib import blake2b

from pagedchat.engine.sequence import Sequence

ROOT = b""
"""The parent hash of a first block."""
_TOKEN_BYTES = array("I").itemsize


def hash_block(parent: bytes, token_ids: TokenIds[int]) -> bytes:
    """16 bytes naming these tokens after that prefix."""
    return _hash_bytes(parent, array("I", token_ids).tobytes())


def token_hashes(seq: Sequence, count: int, block_size: int) -> list[bytes]:
    """The hashes of a sequence's first `count` full blocks of tokens, and of more where they are known already.

    Each is computed once.

    Args:
        seq: has at least `count * block_size` tokens.
        count: blocks.
        block_size: tokens in a block.

    Returns:
        The sequence's own list, not to be changed.
    """
    hashes = seq.token_hashes
    start = len(hashes)
    if start < count:
        data = array("I", seq.token_ids[start * block_size : count * block_size]).tobytes()
        size = block_size * _TOKEN_BYTES
        parent = hashes[-1] if hashes else ROOT
        for begin in range(0, len(data), size):
            parent = _hash_bytes(parent, data[begin : begin + size])
            hashes.append(parent)
    return hashes


def forget_hashes(seq: Sequence, length: int, block_size: int) -> None:
    """The sequence was cut back to `length` tokens, and may go on with others."""
    del seq.token_hashes[length // block_size :]


def _hash_bytes(parent: bytes, tokens: bytes) -> bytes:
    """`hash_block` for tokens that are laid out already: 32-bit numbers, one after the other."""
    return blake2b(parent + tokens, digest_size=16).digest()
