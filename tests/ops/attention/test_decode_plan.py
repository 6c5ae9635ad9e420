"""The split covers every tile, and fills the multiprocessors where there is enough to do."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pagedchat.ops.attention.decode_grid import TILE_TOKENS, DecodeShape
from pagedchat.ops.attention.decode_plan import MOST_GATHERED, plan_split, split_for

SHAPES = [DecodeShape(12, 1, 64), DecodeShape(8, 4, 128), DecodeShape(1, 40, 64), DecodeShape(2, 3, 256)]


@given(
    shape=st.sampled_from(SHAPES),
    num_seqs=st.integers(1, 512),
    max_len=st.integers(0, 200_000),
    share=st.floats(0, 1),
    num_multiprocessors=st.integers(1, 200),
)
def test_the_splits_cover_the_longest_sequence(
    shape: DecodeShape, num_seqs: int, max_len: int, share: float, num_multiprocessors: int
) -> None:
    num_tokens = max_len + int(share * (num_seqs - 1) * max_len)

    plan = split_for(shape, num_seqs, max_len, num_tokens, num_multiprocessors)

    tiles = max(1, -(-max_len // TILE_TOKENS))
    assert plan.num_splits * plan.tiles_per_split >= tiles
    assert (plan.num_splits - 1) * plan.tiles_per_split < tiles


@pytest.mark.parametrize("shape", SHAPES)
def test_one_long_sequence_uses_most_of_the_gpu(shape: DecodeShape) -> None:
    plan = split_for(shape, 1, 100_000, 100_000, 132)

    assert plan.num_splits * shape.num_kv_heads * shape.row_blocks >= 0.8 * 132


def test_a_full_batch_is_not_split() -> None:
    plan = split_for(SHAPES[0], 256, 1024, 256 * 1024, 132)

    assert plan.num_splits == 1


@given(num_seqs=st.integers(1, 512), max_len=st.integers(1, 200_000))
def test_lengths_that_nobody_knows_are_split_for_the_longest(num_seqs: int, max_len: int) -> None:
    plan = plan_split(SHAPES[1], num_seqs, max_len, int(0.75 * num_seqs * max_len), 132, any_lengths=True)

    assert plan.is_even == (-(-max_len // TILE_TOKENS) * TILE_TOKENS >= 1024)
    if max_len >= 4096:
        assert plan.num_splits >= 4


@given(
    shape=st.sampled_from(SHAPES),
    num_seqs=st.integers(1, 64),
    max_len=st.integers(1, 20_000),
    num_multiprocessors=st.integers(1, 200),
    any_lengths=st.booleans(),
)
def test_clusters_are_for_a_few_parts_that_are_all_there_at_a_time(
    shape: DecodeShape, num_seqs: int, max_len: int, num_multiprocessors: int, any_lengths: bool
) -> None:
    sizes = (shape, num_seqs, max_len, num_seqs * max_len, num_multiprocessors)

    plan = plan_split(*sizes, any_lengths=any_lengths, clusters=True)

    at_a_time = shape.resident_thread_blocks(plan.num_warps) * num_multiprocessors
    if plan.gathers:
        assert 2 <= plan.num_splits <= MOST_GATHERED
        assert plan.num_splits * num_seqs * shape.num_kv_heads * shape.row_blocks < at_a_time
    assert not plan_split(*sizes, any_lengths=any_lengths).gathers


@pytest.mark.parametrize("num_tokens", [300, 1024])
def test_one_chat_of_a_real_model_is_gathered(num_tokens: int) -> None:
    for shape in (DecodeShape(8, 4, 128), DecodeShape(2, 7, 64), DecodeShape(8, 2, 128)):
        plan = plan_split(shape, 1, num_tokens, num_tokens, 132, any_lengths=True, clusters=True)
        assert plan.gathers


@pytest.mark.parametrize("num_kv_heads", [1, 2, 8, 32])
@pytest.mark.parametrize("head_size", [64, 128])
@pytest.mark.parametrize("num_seqs", [8, 16, 24, 48, 96, 256])
def test_a_crowd_has_thread_blocks_for_most_of_the_gpu_and_not_many_times_that(
    num_kv_heads: int, head_size: int, num_seqs: int
) -> None:
    plan = plan_split(
        DecodeShape(num_kv_heads, 4, head_size), num_seqs, 2048, 1536 * num_seqs, 132, any_lengths=True
    )

    columns = num_seqs * num_kv_heads
    fit = 2048 // TILE_TOKENS // plan.tiles_per_split  # of one sequence of 2,048 tokens
    assert plan.is_even
    assert columns * min(plan.num_splits, fit) >= min(132, 8 * columns)
    assert columns * plan.num_splits <= max(2048, 4 * columns)


def test_lengths_that_are_known_are_not() -> None:
    assert not plan_split(SHAPES[1], 64, 4096, 64 * 4096, 132).is_even
