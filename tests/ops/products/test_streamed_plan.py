import pytest

from pagedchat.ops.products.streamed_plan import StreamPlan, plan_stream

H200 = {"num_multiprocessors": 132, "shared_limit": 227 << 10}


def test_the_ring_is_as_long_as_a_thread_block_has_work_or_memory() -> None:
    up = plan_stream(2048, 16384, 1, normed=True, **H200)
    out = plan_stream(2048, 2048, 1, normed=False, **H200)
    down = plan_stream(8192, 2048, 8, normed=False, **H200)
    assert up == StreamPlan(num_warps=8, token_tiles=1, stage_features=1024, stages=10)
    assert out == StreamPlan(num_warps=8, token_tiles=1, stage_features=1024, stages=4)
    assert down == StreamPlan(num_warps=8, token_tiles=1, stage_features=1024, stages=10)


@pytest.mark.parametrize(("in_features", "normed"), [(2048, True), (2048, False), (4096, False), (8192, False)])
def test_a_thread_block_fits_on_a_multiprocessor(in_features: int, normed: bool) -> None:
    plan = plan_stream(in_features, 1 << 17, 8, normed=normed, **H200)
    assert plan is not None
    assert plan.shared_bytes(in_features, normed) + 1024 <= 228 << 10


@pytest.mark.parametrize(
    ("in_features", "num_rows", "num_tokens", "normed", "why"),
    [
        (768, 50272, 1, True, "rows are short"),
        (2048, 1024, 1, False, "the weight is small"),
        (2048, 2048, 9, False, "too many tokens"),
        (4096, 12288, 1, True, "the normed input does not stay in registers"),
        (2176, 8192, 1, False, "no stage divides the rows"),
    ],
)
def test_what_does_not_stream(in_features: int, num_rows: int, num_tokens: int, normed: bool, why: str) -> None:
    assert plan_stream(in_features, num_rows, num_tokens, normed=normed, **H200) is None, why


def test_without_room_for_the_ring_nothing_streams() -> None:
    assert plan_stream(2048, 16384, 1, normed=True, num_multiprocessors=132, shared_limit=99 << 10) is None
