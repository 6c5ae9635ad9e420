"""Norms in two halves: by the product that adds to the residual stream and by the one that reads it, against
float64; on a CPU by the kernels themselves.
"""

from dataclasses import replace

import pytest
import torch
from torch.nn import functional

from pagedchat.ops.clusters.cluster_linear import launch_clusters
from pagedchat.ops.clusters.cluster_plan import ClusterPlan
from pagedchat.ops.common.norm import Norm
from pagedchat.ops.products.deferred_norm import DeferredRows, can_be_deferred
from pagedchat.ops.products.warpgroup_linear import deferred_rows, warpgroup_linear
from tests.ops.clusters.test_cluster_linear import DEVICES, kernels_on
from tests.ops.products.small_batch_case import DTYPES, allowed, error, exact_norm, normal
from tests.ops.quantized.few_bits_case import FORMATS, weight_of

EPS = 1e-5
WIDTH, INNER, COLUMNS = 192, 256, 128
KINDS = {"rounded": {}, "exact": {"exact": True}, "one more": {"exact": True, "one_more": True}}
CUTS = [
    (9, ClusterPlan(16, 8, 1, 3), ClusterPlan(16, 4, 1, 3)),  # sums of 16 columns; half a tile's rows
    (20, ClusterPlan(32, 4, 1, 3), ClusterPlan(32, 1, 1, 4)),
    (61, ClusterPlan(64, 2, 4, 3), ClusterPlan(64, 1, 4, 3)),  # tokens that are shared
]
"""Tokens, and how the product before a norm is cut and the one behind it."""


def make_norm(width: int, device: str, dtype: torch.dtype, kind: str = "rounded") -> Norm:
    """Of weights around one, some of them large."""
    weight = normal(width, device=device, dtype=dtype) + 1
    weight[3] = 9.5
    options = KINDS[kind]
    largest = (weight.float() + bool(options.get("one_more"))).abs().max().item()
    return Norm("rms", weight, None, EPS, largest=largest, **options)


class Case:
    """A stream that a product adds to, and the norm of the sum."""

    def __init__(self, num_tokens: int, device: str, dtype: torch.dtype, *, kind: str = "rounded") -> None:
        self.rows = normal(num_tokens, INNER, device=device, dtype=dtype)
        self.weight = normal(WIDTH, INNER, device=device, dtype=dtype, scale=INNER**-0.5)
        self.stream = normal(num_tokens, WIDTH, device=device, dtype=dtype, seed=3)
        self.norm = make_norm(WIDTH, device, dtype, kind)
        before = self.stream.cpu().double()
        self.summed = before + self.rows.cpu().double() @ self.weight.cpu().double().T
        self.normed = exact_norm(self.norm, self.summed)


def room_for(case: Case, plan: ClusterPlan) -> DeferredRows:
    """What a kernel that leaves something out leaves as no number."""
    ahead = DeferredRows.like(case.stream, case.norm, plan.num_sums(WIDTH))
    ahead.rows.fill_(float("nan"))
    ahead.squares.fill_(float("nan"))
    return ahead


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("num_tokens", "writer", "reader"), CUTS, ids=str)
def test_by_clusters(num_tokens: int, writer: ClusterPlan, reader: ClusterPlan, kind: str, device: str) -> None:
    dtype = DTYPES[num_tokens % 2]
    case = Case(num_tokens, device, dtype, kind=kind)
    weight = normal(COLUMNS, WIDTH, device=device, dtype=dtype, scale=WIDTH**-0.5)
    bias = normal(COLUMNS, device=device, dtype=dtype)
    ahead, output = room_for(case, writer), case.stream.new_empty(num_tokens, COLUMNS)

    with kernels_on(device, seed=1):
        launch_clusters(case.stream, case.rows, case.weight, None, case.stream, "none", False, writer, ahead=ahead)
        launch_clusters(output, ahead, weight, bias, None, "none", False, reader)

    assert error(case.stream, case.summed) < allowed(dtype)
    assert error(output, case.normed @ weight.cpu().double().T + bias.cpu().double()) < 2 * allowed(dtype)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize(("num_tokens", "writer", "reader"), CUTS, ids=str)
def test_gates_by_clusters(num_tokens: int, writer: ClusterPlan, reader: ClusterPlan, device: str) -> None:
    dtype = torch.float16
    case = Case(num_tokens, device, dtype)
    weight = normal(2 * COLUMNS, WIDTH, device=device, dtype=dtype, scale=WIDTH**-0.5)
    ahead, output = room_for(case, writer), case.stream.new_empty(num_tokens, COLUMNS)
    gates, values = (case.normed @ weight.cpu().double().T).chunk(2, dim=-1)

    with kernels_on(device, seed=2):
        launch_clusters(case.stream, case.rows, case.weight, None, case.stream, "none", False, writer, ahead=ahead)
        launch_clusters(output, ahead, weight, None, None, "silu", True, reader)

    assert error(output, functional.silu(gates) * values) < 4 * allowed(dtype)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("num_tokens", [5, 40, 64, 100])
@pytest.mark.parametrize("paired", [False, True], ids=["plain", "gates"])
def test_by_warpgroups(num_tokens: int, paired: bool, device: str) -> None:
    dtype = DTYPES[num_tokens // 4 % 2]
    case = Case(num_tokens, device, dtype)
    weight = normal(2 * COLUMNS, WIDTH, device=device, dtype=dtype, scale=WIDTH**-0.5)

    with kernels_on(device, seed=3):
        ahead = deferred_rows(case.stream, case.norm, case.weight, weight, paired=paired)
        assert ahead is not None
        ahead.rows.fill_(float("nan"))
        ahead.squares.fill_(float("nan"))
        warpgroup_linear(case.rows, case.weight, residual=case.stream, output=case.stream, ahead=ahead)
        activation = "silu" if paired else "none"
        output = warpgroup_linear(ahead, weight, activation=activation, paired=paired)

    wanted = case.normed @ weight.cpu().double().T
    if paired:
        gates, values = wanted.chunk(2, dim=-1)
        wanted = functional.silu(gates) * values
    assert error(case.stream, case.summed) < allowed(dtype)
    assert error(output, wanted) < (4 if paired else 2) * allowed(dtype)


@pytest.mark.parametrize("device", DEVICES)
def test_numbers_as_large_as_16_bits_have_are_weighed(device: str) -> None:
    """Of a stream that has the largest float16, and a weight that would bring it out of reach."""
    case = Case(4, device, torch.float16)
    case.stream[:, 3] = 65000.0  # weight 9.5
    weight = normal(COLUMNS, WIDTH, device=device, dtype=torch.float16, scale=WIDTH**-0.5)
    with kernels_on(device, seed=1):
        ahead = deferred_rows(case.stream, case.norm, case.weight, weight)
        assert ahead is not None
        warpgroup_linear(case.rows, case.weight, residual=case.stream, output=case.stream, ahead=ahead)
        output = warpgroup_linear(ahead, weight)

    normed = exact_norm(case.norm, case.stream.cpu().double())
    assert error(output, normed @ weight.cpu().double().T) < 2 * allowed(torch.float16)


def test_norms_of_another_kind_have_a_launch_of_their_own() -> None:
    norm = make_norm(64, "cpu", torch.float16)
    assert can_be_deferred(norm)
    assert norm.unit == 16
    assert replace(norm, largest=0.5).unit == 1
    assert not can_be_deferred(None)
    assert not can_be_deferred(replace(norm, kind="layer"))
    assert not can_be_deferred(replace(norm, largest=None))
    with pytest.raises(ValueError, match="the largest element of the norm's weight is not known"):
        replace(norm, largest=None).unit  # noqa: B018


def test_norms_have_launches_of_their_own_where_products_have_no_part_in_them() -> None:
    case = Case(12, "cpu", torch.float16)
    small, large = normal(64, WIDTH, device="cpu", dtype=torch.float16), case.weight.new_empty(60_000, WIDTH)
    few_bits = weight_of(*FORMATS["int8"], 64, WIDTH, "cpu")
    with kernels_on("cpu", seed=1):
        assert deferred_rows(case.stream, case.norm, case.weight, small) is not None
        for reader in (small[:, :20], large, few_bits):
            assert deferred_rows(case.stream, case.norm, case.weight, reader) is None
        of_few_bits = weight_of(*FORMATS["int8"], WIDTH, WIDTH, "cpu")
        assert deferred_rows(case.stream, case.norm, of_few_bits, small) is None


def test_more_sums_than_are_worth_reading_have_a_launch_of_their_own() -> None:
    stream = normal(64, 896, device="cpu", dtype=torch.float16)
    norm, weight = make_norm(896, "cpu", torch.float16), stream.new_empty(896, 896)
    with kernels_on("cpu", seed=1):
        assert deferred_rows(stream[:16], norm, weight, weight) is not None
        assert deferred_rows(stream, norm, weight, weight) is None


def test_rows_that_a_product_has_no_part_in_are_refused() -> None:
    case = Case(12, "cpu", torch.float16)
    small = normal(64, WIDTH, device="cpu", dtype=torch.float16)
    ahead = DeferredRows.like(case.stream, case.norm, 3)
    with pytest.raises(ValueError, match="has no part in a norm"):
        warpgroup_linear(ahead, small)
    with pytest.raises(ValueError, match="rows for the norm ahead are unlike the residual"):
        warpgroup_linear(case.rows, case.weight, ahead=ahead)
    output = small.new_empty(12, 64)
    with pytest.raises(ValueError, match="12 tokens in launches of 8 have no part in a norm"):
        launch_clusters(output, ahead, small, None, None, "none", False, ClusterPlan(8, 1, 1, 3))
