"""How screening is cut: within the shared memory that there is, for all widths of models."""

import pytest

from pagedchat.ops.screening.plan import (
    MAX_TOKENS,
    MAX_TOP_K,
    MAX_WIDTH,
    list_cluster,
    num_units,
    plan_screen,
    screen_bytes,
)
from pagedchat.resources import resource_dir

H200_SHARED, RTX_SHARED = 227 << 10, 99 << 10


@pytest.mark.parametrize("num_tokens", [1, 8, 9, 16, 17, 32, 33, 64])
def test_a_batch_has_columns_and_stages_with_room(num_tokens: int) -> None:
    plan = plan_screen(2048, num_tokens, H200_SHARED)
    assert plan is not None
    assert num_tokens <= plan.columns < max(9, 2 * num_tokens)
    assert plan.stages >= 3
    assert plan.shared_bytes <= H200_SHARED


def test_what_has_no_room_is_not_screened() -> None:
    assert plan_screen(2048, MAX_TOKENS + 1, H200_SHARED) is None
    assert plan_screen(MAX_WIDTH + 8, 1, H200_SHARED) is None
    assert plan_screen(2047, 1, H200_SHARED) is None
    assert plan_screen(2048, 64, 90 << 10) is None
    assert plan_screen(2048, 1, RTX_SHARED) is not None


def test_a_row_is_shared_by_as_many_thread_blocks_as_there_is_room_for() -> None:
    assert [list_cluster(rows) for rows in (1, 16, 17, 32, 33, 64)] == [8, 8, 4, 4, 2, 2]


def test_so_many_tokens_are_wanted_at_most_as_the_kernel_has_a_bar_for() -> None:
    kernel = (resource_dir("kernels") / "screening" / "list_screened.cu").read_text(encoding="utf-8")
    assert f"constexpr int MOST_WANTED = {MAX_TOP_K};" in kernel


def test_a_copy_takes_a_byte_an_element_and_what_rows_have_besides() -> None:
    assert num_units(151_936) == 2374
    assert screen_bytes(151_936, 896) == 151_936 * (896 + 16)
    assert screen_bytes(50_265, 960) == 50_304 * (1024 + 16)
