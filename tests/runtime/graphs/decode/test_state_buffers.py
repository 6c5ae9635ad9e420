"""How batches are laid out for captured decodes."""

import pytest
import torch

from pagedchat.ops.sampling.sample_rows import SampleRow, pack_rows, unpack_rows
from pagedchat.runtime.graphs.decode.buckets import Bucket
from pagedchat.runtime.graphs.decode.state_buffers import HISTORY_LEN, Batch, StateBuffers, no_rows
from tests.ops.paged_case import DEVICES
from tests.runtime.graphs.case import BLOCK_SIZE, VOCAB_SIZE


def test_a_batch_is_laid_out_with_padding() -> None:
    buffers = StateBuffers(Bucket(8, 64), 16, torch.device("cpu"), VOCAB_SIZE)
    bucket = Bucket(4, 32)
    tables = torch.tensor([[5, 6, 7], [8, 9, 10]], dtype=torch.int32)
    buffers.upload(bucket, Batch([11, 12], [30, 3], tables), 9)
    state = buffers.state(bucket)
    state.check()
    assert state.step.tolist() == [9]
    assert state.token_ids.tolist() == [11, 12, 0, 0]
    assert state.positions.tolist() == [30, 3, -1, -1]
    assert state.seq_lens.tolist() == [31, 4, 0, 0]
    assert state.block_tables[:2].tolist() == [[5, 6], [8, 9]]
    buffers.extend_tables(bucket, [(1, 1, [8, 2, 7])])
    buffers.upload_tables(bucket)
    assert state.block_tables[:2].tolist() == [[5, 6], [8, 2]]
    assert state.positions.tolist() == [30, 3, -1, -1]
    buffers.extend_tables(bucket, [(1, 1, [4, 3, 7])])
    buffers.upload_places(bucket, [31, -1])
    assert state.block_tables[:2].tolist() == [[5, 6], [8, 3]]
    assert state.token_ids.tolist() == [11, 12, 0, 0]
    assert state.positions.tolist() == [31, -1, -1, -1]
    assert state.seq_lens.tolist() == [32, 0, 0, 0]


@pytest.mark.parametrize("device", DEVICES)
def test_more_blocks_leave_what_the_device_made_of_the_others(device: str) -> None:
    bucket = Bucket(4, 64)
    buffers = StateBuffers(bucket, 16, torch.device(device), VOCAB_SIZE)
    state = buffers.state(bucket)
    buffers.upload(bucket, Batch([1, 2, 3], [0, 0, 0], torch.tensor([[5], [6], [7]], dtype=torch.int32)), 1)
    state.block_tables[:3, 0] = torch.tensor([7, 5, 6], dtype=torch.int32, device=device)

    buffers.upload_blocks(bucket, [(0, 1, [5, 11, 12]), (1, 1, [6]), (2, 1, [7, 13, 14, 15, 16])])

    assert state.block_tables[:3].tolist() == [[7, 11, 12, 0], [5, 0, 0, 0], [6, 13, 14, 15]]
    assert state.token_ids.tolist() == [1, 2, 3, 0]


def test_padding_draws_nothing_and_counts_nothing() -> None:
    buffers, bucket = StateBuffers(Bucket(4, 64), 16, torch.device("cpu"), VOCAB_SIZE), Bucket(4, 64)
    tables = torch.zeros((1, 1), dtype=torch.int32)
    for batch in (no_rows(), Batch([1], [0], tables, sampling=pack_rows([SampleRow(counts_row=0)]))):
        buffers.upload(bucket, batch, 1)
        rows = unpack_rows(buffers.sampling(bucket))[len(batch.positions) :]
        assert [(row.scale, row.counts_row, row.top_k) for row in rows] == [(0.0, -1, -1)] * len(rows)
        assert len(rows) == 4 - len(batch.positions)


def test_tokens_of_the_last_steps_are_kept() -> None:
    buffers = StateBuffers(Bucket(4, 64), 16, torch.device("cpu"), VOCAB_SIZE)
    state = buffers.state(Bucket(2, 64))
    buffers.upload(Bucket(2, 64), Batch([1, 2], [0, 0], torch.zeros((2, 1), dtype=torch.int32)), HISTORY_LEN - 1)
    state.advance(torch.tensor([5, 6], dtype=torch.int32))
    state.advance(torch.tensor([7, 8], dtype=torch.int32))
    assert buffers.tokens(Bucket(2, 64), HISTORY_LEN - 1) == [5, 6]
    assert buffers.tokens(Bucket(2, 64), HISTORY_LEN) == [7, 8]
    assert state.positions.tolist() == [2, 2]


@pytest.mark.parametrize("device", DEVICES)
def test_tokens_that_the_device_has_go_to_their_rows(device: str) -> None:
    bucket = Bucket(4, 64)
    buffers = StateBuffers(bucket, BLOCK_SIZE, torch.device(device), 16)
    tables = torch.zeros((3, 2), dtype=torch.int32)
    for rows, expected in (([0, 1, 2], [7, 8, 9, 0]), ([2, 0, 1], [8, 9, 7, 0])):
        buffers.upload(bucket, Batch([0, 0, 0], [4, 5, 6], tables), 1)
        tokens = torch.tensor([7, 8, 9], dtype=torch.int32, pin_memory=device == "cuda")
        buffers.take_tokens(bucket, rows, tokens)
        assert buffers.state(bucket).token_ids.tolist() == expected
        buffers.counts.zero_()
        buffers.count_taken(bucket, [2, 0])
        assert buffers.counts.nonzero().tolist() == [[0, expected[0]], [2, expected[2]]]


def test_steps_of_two_buckets_can_leave_their_tokens_in_the_same_place() -> None:
    many, few = Bucket(8, 256), Bucket(4, 512)
    places = {step: {step % HISTORY_LEN * 4 + i for i in range(4)} for step in range(HISTORY_LEN)}
    for step in range(2 * HISTORY_LEN):
        there = {step % HISTORY_LEN * 8 + i for i in range(8)}
        for other, here in places.items():
            assert StateBuffers.share_history(many, step, few, other) == bool(there & here)
            assert StateBuffers.share_history(few, other, many, step) == bool(there & here)
