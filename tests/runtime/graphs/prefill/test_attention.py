"""Where the tokens of chunks go."""

import torch

from pagedchat.runtime.graphs.prefill.attention import PrefillAttention
from pagedchat.runtime.graphs.prefill.buckets import PrefillBucket
from pagedchat.runtime.graphs.prefill.buffers import PrefillBuffers
from tests.runtime.graphs.case import BLOCK_SIZE, chunk, make_runner, tiny_model


def test_tokens_go_to_their_slots_and_padding_to_none() -> None:
    runner = make_runner(tiny_model("opt", "cpu", torch.float32), 8, captured=False)
    bucket = PrefillBucket(16, 4, 64)
    buffers = PrefillBuffers(bucket, BLOCK_SIZE, torch.device("cpu"))
    rows = buffers.rows(bucket)
    paged = PrefillAttention(runner.backend, rows, bucket)  # type: ignore[arg-type]
    buffers.upload(bucket, [chunk([5, 6, 7, 8, 9], [3], 2), chunk(list(range(40)), [4, 1, 2], 15, 19)])
    assert paged.begin().tolist() == [2, 3, 4, 15, 16, 17, 18] + [0] * 9
    assert paged._slots.tolist() == [50, 51, 52, 79, 16, 17, 18] + [-1] * 9
