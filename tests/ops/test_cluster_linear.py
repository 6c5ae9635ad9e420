import pytest
import torch
from torch.nn import functional

from pagedchat.ops.cluster_linear import cluster_linear
from pagedchat.ops.cluster_plan import num_parts, plan_cluster, shared_bytes
from tests.ops.paged_case import DEVICES
from tests.ops.small_batch_case import DTYPES, allowed, error, normal

SIZES = [(768, 2304), (3072, 768), (2048, 3072), (8192, 128), (96, 64), (256, 100)]
"""Inner dimension, rows of the weight; the last ones are not whole tiles."""


def check(num_tokens: int, in_features: int, out_features: int, dtype: torch.dtype, device: str) -> None:
    rows = normal(num_tokens, in_features, device=device, dtype=dtype)
    weight = normal(out_features, in_features, device=device, dtype=dtype, scale=in_features**-0.5)
    bias = normal(out_features, device=device, dtype=dtype)
    residual = normal(num_tokens, out_features, device=device, dtype=dtype, seed=3)
    product = rows.cpu().double() @ weight.cpu().double().T
    plain = cluster_linear(rows, weight)
    assert error(plain, product) < allowed(dtype)
    wanted = product + bias.cpu().double()
    assert error(cluster_linear(rows, weight, bias=bias, activation="relu"), wanted.relu()) < allowed(dtype)
    wanted = wanted + residual.cpu().double()
    got = cluster_linear(rows, weight, bias=bias, residual=residual, output=residual)
    assert got is residual
    assert error(got, wanted) < allowed(dtype)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize(("in_features", "out_features"), SIZES, ids=str)
def test_agrees_with_the_definition(in_features: int, out_features: int, device: str) -> None:
    for num_tokens in (40, 130):
        check(num_tokens, in_features, out_features, torch.float16, device)
    check(5, in_features, out_features, torch.bfloat16, device)


@pytest.mark.gpu
def test_all_numbers_of_tokens_and_the_same_bits_every_time() -> None:
    weight = normal(768, 768, device="cuda", dtype=torch.float16, scale=768**-0.5)
    for num_tokens in range(1, 70):
        rows = normal(num_tokens, 768, device="cuda", dtype=torch.float16)
        first = cluster_linear(rows, weight)
        assert error(first, rows.cpu().double() @ weight.cpu().double().T) < allowed(torch.float16)
        assert torch.equal(first, cluster_linear(rows, weight))


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_gated(dtype: torch.dtype, device: str) -> None:
    in_features = 2048
    for num_tokens in (5, 64):
        rows = normal(num_tokens, in_features, device=device, dtype=dtype)
        weight = normal(2 * 1024, in_features, device=device, dtype=dtype, scale=in_features**-0.5)
        gates, values = (rows.cpu().double() @ weight.cpu().double().T).chunk(2, dim=-1)
        got = cluster_linear(rows, weight, activation="silu", paired=True)
        assert error(got, functional.silu(gates) * values) < 2 * allowed(dtype)


def test_the_inner_dimension_is_divided_into_short_slices() -> None:
    limit = 227 << 10
    assert [plan_cluster(width, 32, limit) for width in (96, 768, 2048, 3072, 8192)] == [1, 2, 4, 6, 8]
    assert plan_cluster(1024 + 32, 32, limit) == 3
    assert plan_cluster(100, 32, limit) is None
    assert plan_cluster(8192, 64, 99 << 10) is None
    assert [num_parts(768, cluster) for cluster in (1, 2, 4, 8)] == [2, 2, 2, 3]
    assert shared_bytes(768, 4, 8) == 64 * (2 * 224 + 2 * 4 * 68)
    assert shared_bytes(768, 8, 1) == 8 * (2 * 96 + 3 * 4 * 68)


def test_wrong_arguments_are_named() -> None:
    rows, weight = torch.zeros(3, 64), torch.zeros(128, 64)
    with pytest.raises(ValueError, match=r"weight has shape \[128, 32\], expected \[\*, 64\]"):
        cluster_linear(rows, weight[:, :32])
    with pytest.raises(ValueError, match="paired rows come without a bias"):
        cluster_linear(rows, weight, paired=True, bias=torch.zeros(64))
