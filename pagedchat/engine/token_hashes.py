"""The chained hashes that name a sequence's tokens, block by block, each computed once.

A hash says what would be in a block, not whether anybody has computed it. So it may be made as soon as the tokens
are known: while a device is busy, and not when somebody waits for a batch. Knows tokens only, no blocks.
"""

from array import array

from pagedchat.engine.prefix_cache import ROOT, hash_bytes
from pagedchat.engine.sequence import Sequence

_TOKEN_BYTES = array("I").itemsize


def token_hashes(seq: Sequence, count: int, block_size: int) -> list[bytes]:
    """The hashes of a sequence's first `count` full blocks of tokens, and of more where they are known already.

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
            parent = hash_bytes(parent, data[begin : begin + size])
            hashes.append(parent)
    return hashes


def forget_hashes(seq: Sequence, length: int, block_size: int) -> None:
    """The sequence was cut back to `length` tokens, and may go on with others."""
    del seq.token_hashes[length // block_size :]
