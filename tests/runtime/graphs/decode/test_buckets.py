"""Sizes of decode steps are rounded up."""

from pagedchat.runtime.graphs.decode.buckets import Bucket, batch_sizes, bucket_of, context_lens


def test_batch_and_context_are_rounded_up() -> None:
    assert batch_sizes(20) == (1, 2, 4, 8, 16, 20)
    assert batch_sizes(600) == (1, 2, 4, 8, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512, 600)
    assert context_lens(2048, 3) == (256, 512, 1024, 2048)
    assert context_lens(100, 3) == (100,)
    assert context_lens(700, 3) == (256, 512, 700)
    assert context_lens(2048, 2) == (384, 1024, 2048)
    assert context_lens(500, 2) == (384, 500)
    assert context_lens(384, 1) == (384,)
    assert context_lens(2048, 1, one_turn=768) == (768, 2048)
    assert context_lens(4096, 1, one_turn=768) == (768, 2048, 4096)
    assert context_lens(2048, 3, one_turn=768) == (256, 512, 1024, 2048)
    assert bucket_of(3, 256, 20, 2048) == Bucket(4, 256)
    assert bucket_of(17, 257, 20, 2048) == Bucket(20, 512)
    assert bucket_of(1, 257, 20, 2048) == Bucket(1, 384)
    assert bucket_of(2, 385, 20, 2048) == Bucket(2, 1024)
    assert bucket_of(1, 385, 20, 2048, one_turn=768) == Bucket(1, 768)
    assert bucket_of(21, 1, 20, 2048) is None
    assert bucket_of(1, 2049, 20, 2048) is None
    assert Bucket(1, 100).num_blocks(16) == 7
