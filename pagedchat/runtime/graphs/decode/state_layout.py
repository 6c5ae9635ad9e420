"""Where things lie in the memory of captured steps, in words of 32 bits, for each bucket. Arithmetic only.

::

    | sampling rows | step . . . | group starts | shared_lens | token_ids | positions | seq_lens | block tables |

"""

from pagedchat.ops.sampling.sample_rows import ROW_WORDS
from pagedchat.runtime.graphs.decode.buckets import MAX_GROUPS, Bucket

STEP_WORDS = 4
"""The step and padding, so that what follows starts at 16 bytes."""
GROUP_WORDS = MAX_GROUPS + 4
"""Where groups of rows begin and the last one ends, and padding."""
NUM_COLUMNS = 4
"""Numbers of a row before its block table."""


def header(bucket: Bucket) -> int:
    """Where the step's number is; after the sampling rows, at 16 bytes."""
    return -(-bucket.num_seqs * ROW_WORDS // STEP_WORDS) * STEP_WORDS


def columns_start(bucket: Bucket) -> int:
    """Where the first number of each row is."""
    return header(bucket) + STEP_WORDS + GROUP_WORDS


def tables_start(bucket: Bucket) -> int:
    """Where the block tables begin, row by row."""
    return columns_start(bucket) + NUM_COLUMNS * bucket.num_seqs


def padded(column: list[int], bucket: Bucket) -> list[int]:
    """One number for every row; zeros in padding."""
    return column + [0] * (bucket.num_seqs - len(column))


def padded_places(bucket: Bucket, positions: list[int]) -> list[int]:
    """Positions of all rows and their lengths."""
    places = positions + [-1] * (bucket.num_seqs - len(positions))
    return places + [position + 1 for position in places]
