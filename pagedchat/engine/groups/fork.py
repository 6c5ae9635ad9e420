"""A fork that goes on otherwise than its source: cut back to some of the tokens, with others behind them."""

from collections.abc import Sequence as Items

from pagedchat.engine.block_hashes import forget_hashes
from pagedchat.engine.sequence import Sequence


def cut_fork(child: Sequence, length: int, token_ids: Items[int], block_size: int) -> None:
    """Give a new fork the first `length` tokens of its source and `token_ids` behind them.

    The last one of all these has to go through the model for this sequence, so it counts as not computed. Blocks
    past the computed tokens are the caller's to drop.
    """
    child.token_ids[length:] = token_ids
    forget_hashes(child, length, block_size)
    known = len(child.token_ids) - 1
    if child.num_computed > known:
        child.num_computed = known
        child.cut_by = "again"
