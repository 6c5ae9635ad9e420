import pytest

from pagedchat.doctor.model_steps import KNOWN_GPUS
from pagedchat.ops.products.few_rows_plan import plan_few_rows, plan_few_rows_head
from pagedchat.ops.products.small_batch_plan import ProductPlan
from pagedchat.ops.products.streamed_plan import StreamPlan

H200, A100 = KNOWN_GPUS["sm_90"], KNOWN_GPUS["sm_80"]


def test_wide_weights_stream_where_there_are_bulk_copies_and_narrow_ones_do_not() -> None:
    assert isinstance(plan_few_rows(2048, 4096, 8, normed=True, gpu=H200).plan, StreamPlan)
    assert isinstance(plan_few_rows(2048, 4096, 8, normed=True, gpu=A100).plan, ProductPlan)
    assert isinstance(plan_few_rows(2048, 4096, 8, normed=True, gpu=None).plan, ProductPlan)
    assert isinstance(plan_few_rows(768, 2304, 8, normed=True, gpu=H200).plan, ProductPlan)
    assert isinstance(plan_few_rows(4864, 896, 8, normed=False, gpu=H200).plan, ProductPlan)


def test_what_is_narrow_streams_where_it_is_large_or_no_warps_share_it_out() -> None:
    assert isinstance(plan_few_rows_head(896, 151936, 1, normed=True, gpu=H200).plan, StreamPlan)
    assert isinstance(plan_few_rows(1000, 1000, 1, normed=True, gpu=H200).plan, StreamPlan)


def test_a_norm_of_rows_that_are_too_long_is_a_launch_of_its_own() -> None:
    found = plan_few_rows(5120, 13824, 8, normed=True, gpu=H200)
    assert found.norm_apart
    assert found.plan == plan_few_rows(5120, 13824, 8, normed=False, gpu=H200).plan
    head = plan_few_rows_head(5120, 32001, 8, normed=True, gpu=H200)
    assert head.norm_apart
    assert isinstance(head.plan, StreamPlan)


@pytest.mark.parametrize(
    ("in_features", "num_rows", "num_tokens"), [(11008, 4096, 1), (768, 100, 1), (100, 768, 1), (768, 768, 33)]
)
def test_one_product_is_left_to_a_library(in_features: int, num_rows: int, num_tokens: int) -> None:
    assert plan_few_rows(in_features, num_rows, num_tokens, normed=False, gpu=A100).plan is None


def test_a_vocabulary_need_not_be_whole_units() -> None:
    assert isinstance(plan_few_rows_head(2048, 32001, 1, normed=True, gpu=H200).plan, StreamPlan)
    assert plan_few_rows(2048, 32001, 1, normed=True, gpu=H200).plan is None
    assert isinstance(plan_few_rows_head(768, 50272, 1, normed=True, gpu=H200).plan, ProductPlan)
    assert plan_few_rows_head(896, 151936, 1, normed=True, gpu=A100).plan is None
