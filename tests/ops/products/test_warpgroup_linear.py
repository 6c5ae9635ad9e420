import pytest
import torch
from torch.nn import functional

from pagedchat.ops.products.warpgroup_linear import warpgroup_linear
from pagedchat.ops.products.warpgroup_plan import WarpgroupPlan, plan_warpgroups, shared_bytes
from tests.ops.paged_case import DEVICES
from tests.ops.products.small_batch_case import DTYPES, allowed, error, normal

SIZES = [(128, 48), (768, 64), (3072, 64), (1536, 96), (64, 32), (200, 30)]
"""Inner dimension, rows of the weight; the last ones are not whole tiles."""
LIMITS = {"num_multiprocessors": 132, "shared_limit": 227 << 10}


def check(num_tokens: int, in_features: int, out_features: int, dtype: torch.dtype, device: str) -> None:
    rows = normal(num_tokens, in_features, device=device, dtype=dtype)
    weight = normal(out_features, in_features, device=device, dtype=dtype, scale=in_features**-0.5)
    bias = normal(out_features, device=device, dtype=dtype)
    residual = normal(num_tokens, out_features, device=device, dtype=dtype, seed=3)
    product = rows.cpu().double() @ weight.cpu().double().T
    assert error(warpgroup_linear(rows, weight), product) < allowed(dtype)
    wanted = product + bias.cpu().double()
    assert error(warpgroup_linear(rows, weight, bias=bias, activation="relu"), wanted.relu()) < allowed(dtype)
    wanted = wanted + residual.cpu().double()
    got = warpgroup_linear(rows, weight, bias=bias, residual=residual, output=residual)
    assert got is residual
    assert error(got, wanted) < allowed(dtype)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize(("in_features", "out_features"), SIZES, ids=str)
def test_agrees_with_the_definition(in_features: int, out_features: int, device: str) -> None:
    check(64, in_features, out_features, torch.float16, device)
    check(70, in_features, out_features, torch.bfloat16, device)
    check(5, in_features, out_features, torch.float16, device)


@pytest.mark.gpu
@pytest.mark.parametrize(
    ("in_features", "out_features"), [(768, 2304), (768, 768), (768, 3072), (3072, 768)], ids=str
)
def test_sizes_of_a_model_and_the_same_bits_every_time(in_features: int, out_features: int) -> None:
    for num_tokens in (9, 16, 24, 32, 48, 49, 64, 96, 128, 192, 256):
        check(num_tokens, in_features, out_features, torch.float16, "cuda")
        rows = normal(num_tokens, in_features, device="cuda", dtype=torch.float16)
        weight = normal(out_features, in_features, device="cuda", dtype=torch.float16, scale=0.03)
        first = warpgroup_linear(rows, weight)
        assert all(torch.equal(first, warpgroup_linear(rows, weight, overlap=True)) for _ in range(20))


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_gated(dtype: torch.dtype, device: str) -> None:
    for num_tokens, in_features in ((5, 576), (64, 1024)):
        rows = normal(num_tokens, in_features, device=device, dtype=dtype)
        weight = normal(2 * 48, in_features, device=device, dtype=dtype, scale=in_features**-0.5)
        gates, values = (rows.cpu().double() @ weight.cpu().double().T).chunk(2, dim=-1)
        got = warpgroup_linear(rows, weight, activation="silu", paired=True)
        assert error(got, functional.silu(gates) * values) < 2 * allowed(dtype)


def test_the_division_is_that_with_the_least_work_behind_the_wait() -> None:
    assert plan_warpgroups(768, 2304, 16, False, **LIMITS) == WarpgroupPlan(16, 64, 1, 2, 12)
    assert plan_warpgroups(768, 2304, 96, False, **LIMITS) == WarpgroupPlan(48, 64, 1, 2, 12)
    assert plan_warpgroups(768, 768, 32, False, **LIMITS) == WarpgroupPlan(16, 64, 1, 2, 12)
    assert plan_warpgroups(3072, 768, 128, False, **LIMITS) == WarpgroupPlan(64, 64, 4, 2, 12)
    assert plan_warpgroups(768, 3072, 256, False, **LIMITS) == WarpgroupPlan(128, 64, 1, 2, 8)
    assert plan_warpgroups(3072, 768, 256, False, **LIMITS) == WarpgroupPlan(128, 64, 4, 2, 5)
    assert plan_warpgroups(576, 1536, 64, True, **LIMITS) == WarpgroupPlan(64, 32, 1, 2, 9)


def test_products_that_are_too_large_or_not_whole_tiles_are_left_to_others() -> None:
    assert plan_warpgroups(8192, 2048, 64, False, **LIMITS) is None
    assert plan_warpgroups(768, 2304, 257, False, **LIMITS) is None
    assert plan_warpgroups(96, 48, 64, False, **LIMITS) is None
    assert plan_warpgroups(768, 24, 64, False, **LIMITS) is None
    assert plan_warpgroups(768, 3072, 256, False, num_multiprocessors=132, shared_limit=99 << 10) is None


def test_shared_memory_holds_weights_tokens_sums_barriers_and_factors() -> None:
    of_64 = 4 * 64
    assert shared_bytes(768, WarpgroupPlan(64, 48, 1, 2, 12), False) == 12 * 128 * (48 + 64) + 16 * 12 + of_64
    assert shared_bytes(768, WarpgroupPlan(64, 48, 1, 2, 12), True) == 12 * 128 * (96 + 64) + 16 * 12 + of_64
    assert shared_bytes(768, WarpgroupPlan(32, 64, 1, 2, 12), False) == 12 * 128 * (64 + 32) + 16 * 12 + 4 * 32
    wanted = 128 * (12 * 48 + 6 * 64) + 4 * 64 * 56 + 16 * 7 + of_64
    assert shared_bytes(3072, WarpgroupPlan(64, 48, 4, 2, 6), False) == wanted
    assert shared_bytes(64, WarpgroupPlan(64, 48, 1, 2, 1), False) == 2 * 4 * 64 * 56 + 16 + of_64


def test_wrong_arguments_are_named() -> None:
    rows, weight = torch.zeros(3, 64), torch.zeros(128, 64)
    with pytest.raises(ValueError, match=r"weight has shape \[128, 32\], expected \[\*, 64\]"):
        warpgroup_linear(rows, weight[:, :32])
    with pytest.raises(ValueError, match="paired rows come without a bias"):
        warpgroup_linear(rows, weight, paired=True, bias=torch.zeros(64))
