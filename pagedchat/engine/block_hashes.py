"""The names of full blocks: hashes of their tokens, each chained to the hash of the block before it.

So one hash names the whole prefix up to and including its block (as in vLLM's automatic prefix caching). The same
tokens have the same hash in every process.

*Why contents cannot mix.* What is hashed is the parent's hash, of 0 bytes for a first block and of 16 for any
other, and the tokens, 4 bytes each and as many as a block has: within one engine two different (parent, tokens)
never give the same bytes. So two prefixes can have one hash only if BLAKE2b itself maps two inputs to the same 128
bits somewhere along the chain. Among n blocks ever hashed that happens by chance with probability n² / 2¹²⁹: 2⁻⁴⁹
for 2⁴⁰ blocks, which is more than a GPU fills in years. Somebody who looks for such a pair on purpose needs some
2⁶⁴ hashes. Only full blocks are found by hash; how far the last one agrees is compared token by token.

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
