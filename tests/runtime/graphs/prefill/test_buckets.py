"""Sizes of prefills are rounded up."""

from pagedchat.runtime.graphs.prefill.buckets import (
    PrefillBucket,
    all_buckets,
    bucket_of,
    context_lens,
    largest_bucket,
    seq_counts,
    token_counts,
)
from pagedchat.runtime.step.sizes import StepSizes

SIZES = StepSizes(num_tokens=256, num_seqs=20, model_len=600)


def test_steps_are_rounded_up() -> None:
    assert token_counts(100) == (16, 32, 64, 100)
    assert token_counts(1 << 20)[-1] == 32768
    assert seq_counts(20) == (1, 8, 20)
    assert seq_counts(4) == (1, 4)
    assert context_lens(2048) == (512, 2048)
    assert context_lens(600) == (512, 600)
    assert bucket_of(SIZES, 17, 1, 17) == PrefillBucket(32, 1, 512)
    assert bucket_of(SIZES, 16, 2, 513) == PrefillBucket(16, 8, 600)
    assert bucket_of(SIZES, 257, 1, 257) is None
    assert bucket_of(SIZES, 200, 21, 100) is None
    assert bucket_of(SIZES, 20, 2, 601) is None
    assert largest_bucket(SIZES) == PrefillBucket(256, 20, 600)


def test_all_buckets_are_those_that_steps_need() -> None:
    buckets = list(all_buckets(SIZES))
    assert len(set(buckets)) == len(buckets) == 28
    assert buckets[0] == PrefillBucket(16, 1, 512)
    assert PrefillBucket(16, 20, 512) not in buckets  # no chunk has less than one token
    for num_tokens, num_seqs, longest in ((3, 1, 3), (256, 20, 600), (60, 5, 512)):
        assert bucket_of(SIZES, num_tokens, num_seqs, longest) in buckets
