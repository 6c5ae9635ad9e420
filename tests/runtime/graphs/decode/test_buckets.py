"""Sizes of decode steps are rounded up."""

from pagedchat.runtime.graphs.decode.buckets import Bucket, batch_sizes, bucket_of, context_lens, usual_turn


def test_batch_and_context_are_rounded_up() -> None:
    assert batch_sizes(20) == (1, 2, 4, 8, 16, 20)
    assert batch_sizes(600) == (1, 2, 4, 8, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512, 600)
    assert context_lens(2048) == (256, 512, 1024, 2048)
    assert context_lens(100) == (100,)
    assert context_lens(700) == (256, 512, 700)
    assert context_lens(2048, one_turn=384) == (384, 1024, 2048)
    assert context_lens(500, one_turn=384) == (384, 500)
    assert context_lens(384, one_turn=384) == (384,)
    assert context_lens(2048, one_turn=768) == (768, 2048)
    assert context_lens(4096, one_turn=768) == (768, 2048, 4096)
    assert [usual_turn(count) for count in (1, 2, 3)] == [384, 384, None]
    assert bucket_of(3, 256, 20, 2048) == Bucket(4, 256)
    assert bucket_of(17, 257, 20, 2048) == Bucket(20, 512)
    assert bucket_of(1, 257, 20, 2048, one_turn=384) == Bucket(1, 384)
    assert bucket_of(3, 385, 20, 2048, one_turn=384) == Bucket(4, 1024)
    assert bucket_of(1, 385, 20, 2048, one_turn=768) == Bucket(1, 768)
    assert bucket_of(21, 1, 20, 2048) is None
    assert bucket_of(1, 2049, 20, 2048) is None
    assert Bucket(1, 100).num_blocks(16) == 7
