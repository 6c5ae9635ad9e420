"""Sizes that chunks of prompts are captured for: each is rounded up to the next. Pure arithmetic.

Padding costs most in tokens, which every product of the model goes over, so there are many sizes of those; rows of
sequences and of block tables cost little, so there are few.
"""

from bisect import bisect_left
from collections.abc import Iterator
from functools import cache
from typing import NamedTuple

from pagedchat.runtime.step.sizes import StepSizes

_TOKENS = (
    16, 32, 64, 128, 256, 384, 512, 768, 1024, 1536, 2048, 3072, 4096, 6144, 8192, 12288, 16384, 24576, 32768
)  # fmt: skip
_SEQS = (1, 8, 64)
_SHORTEST_CONTEXT = 512
_CONTEXT_STEP = 4


class PrefillBucket(NamedTuple):
    """What one captured forward pass is for."""

    num_tokens: int
    """Of all chunks together, padding included."""
    num_seqs: int
    """Chunks, padding included."""
    context_len: int
    """No sequence is longer, this step's tokens included."""

    def num_blocks(self, block_size: int) -> int:
        """Width of the block tables."""
        return -(-self.context_len // block_size)


@cache
def token_counts(max_num_tokens: int) -> tuple[int, ...]:
    """All sizes up to what a step may have, but none past the largest that is captured."""
    largest = min(max_num_tokens, _TOKENS[-1])
    return (*[count for count in _TOKENS if count < largest], largest)


@cache
def seq_counts(max_num_seqs: int) -> tuple[int, ...]:
    """All sizes up to what a step may have."""
    return (*[count for count in _SEQS if count < max_num_seqs], max_num_seqs)


@cache
def context_lens(model_len: int) -> tuple[int, ...]:
    """All sizes up to what a sequence may have."""
    lens = []
    length = _SHORTEST_CONTEXT
    while length < model_len:
        lens.append(length)
        length *= _CONTEXT_STEP
    return (*lens, model_len)


def largest_bucket(sizes: StepSizes) -> PrefillBucket:
    """The bucket that every other fits into."""
    return PrefillBucket(token_counts(sizes.num_tokens)[-1], sizes.num_seqs, sizes.model_len)


def bucket_of(sizes: StepSizes, num_tokens: int, num_seqs: int, longest: int) -> PrefillBucket | None:
    """The smallest bucket for a step; None if there is none.

    Args:
        sizes: of any step.
        num_tokens: of all chunks together.
        num_seqs: chunks.
        longest: tokens of the longest sequence, its chunk included.
    """
    rounded = (
        _at_least(token_counts(sizes.num_tokens), num_tokens),
        _at_least(seq_counts(sizes.num_seqs), num_seqs),
        _at_least(context_lens(sizes.model_len), longest),
    )
    return None if 0 in rounded else PrefillBucket(*rounded)


def all_buckets(sizes: StepSizes) -> Iterator[PrefillBucket]:
    """Every bucket that a step may need: one sequence first, short contexts and few tokens first."""
    for num_seqs in seq_counts(sizes.num_seqs):
        for context_len in context_lens(sizes.model_len):
            for num_tokens in token_counts(sizes.num_tokens):
                if num_seqs <= num_tokens and (num_seqs > 1 or num_tokens <= context_len):
                    yield PrefillBucket(num_tokens, num_seqs, context_len)


def _at_least(sizes: tuple[int, ...], wanted: int) -> int:
    """The first size that holds what is wanted; 0 if none does."""
    return sizes[bisect_left(sizes, wanted)] if 0 < wanted <= sizes[-1] else 0
