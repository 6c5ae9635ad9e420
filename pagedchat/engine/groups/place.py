"""A fork in the place of a sequence that is given up: its seat in the batch, and the blocks it has written to.

Both have been run to the same length in the same step. So the one that is given up has, at the end of its block
table, a block of its own with as many slots in use as the fork's last block is to have, and perhaps empty ones
behind it. The fork keeps these where they are::

    source   [ 3 ][ 4 ][ 7 ][ 9 .. ]            fork   [ 3 ][ 4 ][ 7 ][ 6 .. ][ 8 ]
    place    [ 3 ][ 5 ][ 2 ][ 6 .. ][ 8 ]              shared         copied   as it was

Whoever knows which sequence continues which can thus tell block tables without asking the block manager: a device,
which begins the next step by itself. Told is what a fork, a close and a copy are.
"""

from pagedchat import cache_events as ce
from pagedchat.engine.block_hashes import forget_hashes
from pagedchat.engine.block_manager import BlockManager
from pagedchat.engine.output import BlockOp
from pagedchat.engine.sequence import Sequence


def take_place(
    blocks: BlockManager, source: Sequence, place: Sequence, child_id: int, token_id: int, *, moved: bool
) -> None:
    """Make `place` the fork of `source`; neither it nor its blocks leave the queues.

    Args:
        blocks: of both.
        source: has its next token, which is not computed, already.
        place: of the same length before that token, or with it; it becomes the fork.
        child_id: the fork's number.
        token_id: in place of the source's last token.
        moved: whether the copy was carried out; otherwise it is planned.
    """
    size, num_computed = blocks.block_size, source.num_computed
    num_full, pruned_id = num_computed // size, place.seq_id
    keep = blocks.num_blocks_for(num_computed)
    own, behind, not_kept = place.block_table[num_full:keep], place.block_table[keep:], source.block_table[keep:]
    tell = blocks.events.append
    tell(ce.SequenceForked(source.seq_id, child_id, "running", num_computed, [token_id], grouped=True))
    if not_kept:
        tell(ce.BlocksFreed(child_id, not_kept[::-1]))
    tell(ce.BlocksFreed(pruned_id, place.block_table[::-1], "pruned"))
    tell(ce.SequenceClosed(pruned_id))
    _share_full_blocks(blocks, source, place, num_full)
    for src, dst in zip(source.block_table[num_full:keep], own, strict=True):
        if not moved:
            blocks.block_ops.append(BlockOp("copy", src, dst))
        blocks.num_copies += 1
        tell(ce.BlockCopied(child_id, num_full, src, dst, num_computed % size, "beam"))
    for block_id in behind:
        tell(ce.BlockAllocated(child_id, block_id))
    _become(place, source, child_id, token_id, size)


def _share_full_blocks(blocks: BlockManager, source: Sequence, place: Sequence, num_full: int) -> None:
    """Only those in which they differ change hands; the others have as many owners as before."""
    theirs, ours = source.block_table, place.block_table
    first = num_full
    while first and theirs[first - 1] != ours[first - 1]:
        first -= 1
    if theirs[:first] != ours[:first]:
        first = 0
    for block_id in theirs[first:num_full]:
        blocks.pool.share(block_id)
    blocks.drop(ours[first:num_full][::-1])
    ours[first:num_full] = theirs[first:num_full]


def _become(place: Sequence, source: Sequence, child_id: int, token_id: int, block_size: int) -> None:
    """All else of a fork; what it may write to stays as it was."""
    place.seq_id = child_id
    place.token_ids = [*source.token_ids[: source.num_computed], token_id]
    place.num_computed = source.num_computed
    place.block_hashes = source.block_hashes.copy()
    place.token_hashes = source.token_hashes.copy()
    forget_hashes(place, source.num_computed, block_size)
    place.num_cached_tokens = source.num_computed
    place.cut_by = ""
