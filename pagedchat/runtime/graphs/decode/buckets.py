"""Sizes that decode steps are captured for: batch and context are rounded up to the next. Pure arithmetic."""

from bisect import bisect_left
from functools import cache
from typing import NamedTuple

from pagedchat.ops.whole_step.plan import ONE_TURN

_BATCHES = (1, 2, 4, 8, 16, 24, 32, 48, 64, 96, 128, 192, 256)
_VERIFIED = (8, 16, 32, 64, 128, 256)
"""Rows of steps that verify drafts: few sizes, each as long as the draft that fills it up."""
_SHORTEST_CONTEXT = 256
_USUALLY_FEW = 2
"""Sequences that are taken to be few whatever the model."""
MAX_GROUPS = 8
"""Beginnings that the rows of a step may share, a power of two; more of them are not read together."""


class Bucket(NamedTuple):
    """What one captured step is for."""

    num_seqs: int
    """Rows, padding included."""
    context_len: int
    """No sequence is longer, this step's token included."""
    num_groups: int = 0
    """Groups of rows that read a beginning together, at most; 0: every row reads its own context."""
    own_len: int = 0
    """With groups: tokens that a row reads alone, at most, as `ops.attention.decode_plan.own_len` counts them."""
    reads_rows: bool = False
    """Whether rows may read what others of the same step write: those of one sequence with a draft do."""

    def num_blocks(self, block_size: int) -> int:
        """Width of the block tables."""
        return -(-self.context_len // block_size)


@cache
def batch_sizes(max_num_seqs: int) -> tuple[int, ...]:
    """All sizes up to what a batch may have; above 256 by steps of 128."""
    sizes = [size for size in _BATCHES if size < max_num_seqs]
    sizes += range(_BATCHES[-1] + 128, max_num_seqs, 128)
    return (*sizes, max_num_seqs)


def usual_turn(num_seqs: int) -> int | None:
    """What `context_lens` takes where nothing is known of a model."""
    return ONE_TURN if num_seqs <= _USUALLY_FEW else None


@cache
def context_lens(model_len: int, one_turn: int | None = None) -> tuple[int, ...]:
    """Powers of two up to what a sequence may have.

    A launch for whole steps of few sequences (`ops.whole_step.plan`) takes about as long for a few tokens as for
    what its thread blocks attend to in one turn, and longer beyond: that is the shortest, and the next one a good
    deal longer.

    Args:
        model_len: tokens of any sequence, at most.
        one_turn: tokens of a sequence, of few; see `graphs.whole_steps.one_turn_len`.
    """
    lens = [] if one_turn is None or one_turn >= model_len else [one_turn]
    length = _SHORTEST_CONTEXT
    while length < model_len:
        if one_turn is None or length > 2 * one_turn:
            lens.append(length)
        length *= 2
    return (*lens, model_len)


@cache
def rows_for(num_seqs: int, max_num_seqs: int) -> int:
    """Rows of the smallest bucket for so many sequences, which are at least one and at most `max_num_seqs`."""
    sizes = batch_sizes(max_num_seqs)
    return sizes[bisect_left(sizes, num_seqs)]


@cache
def verified_sizes(max_num_seqs: int) -> tuple[int, ...]:
    """Rows of steps that verify drafts; none where not even the fewest fit."""
    return tuple(size for size in _VERIFIED if size <= max_num_seqs)


def verify_bucket(num_rows: int, longest: int, max_num_seqs: int, model_len: int) -> Bucket | None:
    """The smallest bucket for a batch with drafts; None if there is none.

    Args:
        num_rows: tokens that are computed.
        longest: tokens of the longest sequence, its draft included.
        max_num_seqs: rows of any step.
        model_len: tokens of any sequence, at most.
    """
    sizes = verified_sizes(max_num_seqs)
    if not sizes or num_rows > sizes[-1] or longest > model_len:
        return None
    return verify_buckets(longest, max_num_seqs, model_len)[bisect_left(sizes, num_rows)]


def verify_buckets(longest: int, max_num_seqs: int, model_len: int) -> tuple[Bucket, ...]:
    """Those for any number of rows, few first; arguments as those of `verify_bucket`."""
    if longest > model_len:
        return ()
    lens = context_lens(model_len)
    return _verify_buckets(lens[bisect_left(lens, longest)], max_num_seqs)


@cache
def _verify_buckets(context_len: int, max_num_seqs: int) -> tuple[Bucket, ...]:
    return tuple(Bucket(rows, context_len, reads_rows=True) for rows in verified_sizes(max_num_seqs))


def bucket_of(
    num_seqs: int, longest: int, max_num_seqs: int, model_len: int, one_turn: int | None = None
) -> Bucket | None:
    """The smallest bucket for a batch; None if there is none.

    Args:
        num_seqs: sequences.
        longest: tokens of the longest one, this step's token included.
        max_num_seqs: of any batch.
        model_len: tokens of any sequence, at most.
        one_turn: see `context_lens`.
    """
    if not 1 <= num_seqs <= max_num_seqs or longest > model_len:
        return None
    rows = rows_for(num_seqs, max_num_seqs)
    lens = context_lens(model_len, one_turn)
    return Bucket(rows, lens[bisect_left(lens, longest)])


def shared_bucket(bucket: Bucket, num_groups: int, longest_own: int) -> Bucket:
    """The same sizes for a batch in which rows share a beginning.

    Args:
        bucket: of the batch.
        num_groups: groups, 1 to `MAX_GROUPS`.
        longest_own: tokens that some row reads alone.
    """
    lens = context_lens(bucket.context_len, usual_turn(bucket.num_seqs))
    own_len = lens[bisect_left(lens, min(longest_own, lens[-1]))]
    return Bucket(bucket.num_seqs, bucket.context_len, 1 << (num_groups - 1).bit_length(), own_len)


def has_room_for(bucket: Bucket, other: Bucket) -> bool:
    """Whether a step of the first serves batches of the second, maybe without reading beginnings together."""
    if bucket.num_seqs < other.num_seqs or bucket.context_len < other.context_len:
        return False
    if bucket.reads_rows != other.reads_rows:
        return False
    return bucket.num_groups == 0 or (bucket.num_groups >= other.num_groups > 0 and bucket.own_len >= other.own_len)
