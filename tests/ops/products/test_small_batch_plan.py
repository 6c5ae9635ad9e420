import pytest

from pagedchat.ops.products.small_batch_plan import ProductPlan, plan_product


@pytest.mark.parametrize(
    ("in_features", "num_warps"),
    [(608, 1), (768, 12), (1024, 8), (3072, 12), (4096, 16), (4864, 19), (8960, 7), (9728, 19), (18944, 16)],
)
def test_a_row_is_shared_out_in_whole_rounds_of_weights_where_they_come_out(
    in_features: int, num_warps: int
) -> None:
    assert plan_product(in_features, 8, False) == ProductPlan(num_warps, token_tiles=1)


@pytest.mark.parametrize(("in_features", "num_warps"), [(768, 4), (2048, 8), (4096, 16)])
def test_behind_a_norm_few_warps_have_one_round(in_features: int, num_warps: int) -> None:
    assert plan_product(in_features, 1, True) == ProductPlan(num_warps, token_tiles=1)


@pytest.mark.parametrize(
    ("in_features", "num_tokens", "normed", "why"),
    [
        (100, 1, False, "no whole steps"),
        (11008, 1, False, "eight warps of 43 steps are slower than a library"),
        (4864, 1, True, "a normed row does not stay in registers"),
        (768, 33, False, "too many tokens"),
    ],
)
def test_what_others_do_better(in_features: int, num_tokens: int, normed: bool, why: str) -> None:
    assert plan_product(in_features, num_tokens, normed) is None, why
