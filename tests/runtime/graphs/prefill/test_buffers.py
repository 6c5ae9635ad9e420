"""How chunks are laid out for captured prefills."""

import torch

from pagedchat.runtime.graphs.prefill.buckets import PrefillBucket
from pagedchat.runtime.graphs.prefill.buffers import PrefillBuffers
from tests.runtime.graphs.case import chunk


def test_chunks_are_laid_out_with_padding() -> None:
    buffers = PrefillBuffers(PrefillBucket(32, 8, 128), 16, torch.device("cpu"))
    buffers.upload(PrefillBucket(32, 8, 128), [chunk(list(range(900, 930)), [99, 98])])
    bucket = PrefillBucket(16, 4, 64)
    buffers.upload(bucket, [chunk([5, 6, 7, 8, 9], [3], 2), chunk(list(range(40)), [4, 1, 2], 15, 19)])
    rows = buffers.rows(bucket)
    assert rows.cu_seqlens_q.tolist() == [0, 3, 7, 7, 7]
    assert rows.seq_lens.tolist() == [5, 19, 0, 0]
    assert rows.token_ids.tolist() == [7, 8, 9, 15, 16, 17, 18] + [0] * 9
    assert rows.positions.tolist() == [2, 3, 4, 15, 16, 17, 18] + [-1] * 9
    assert rows.seq_rows.tolist() == [0, 0, 0, 1, 1, 1, 1] + [0] * 9
    assert rows.block_tables.shape == (4, 4)
    assert rows.block_tables[0, :1].tolist() == [3]
    assert rows.block_tables[1, :2].tolist() == [4, 1]  # the third is past the chunk's end
