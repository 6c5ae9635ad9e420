"""How products are cut for clusters, and which of them are: as quick as the quickest cut that was measured."""

from dataclasses import dataclass, replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pagedchat.jit.driver import Gpu
from pagedchat.ops.clusters.cluster_plan import ROWS, ClusterPlan, plan_clusters
from pagedchat.ops.products.many_rows_plan import plan_many_rows
from pagedchat.ops.products.stream_k_plan import StreamKPlan
from pagedchat.ops.products.warpgroup_plan import WarpgroupPlan

LIMIT = 227 << 10
H200 = Gpu(0, "NVIDIA H200", (9, 0), 140 << 30, 132, LIMIT)
WITHIN = 1.04
_OTHERS = "others"
"""Cuts with more stages, warpgroups or thread blocks a multiprocessor than are kept; the quickest of them."""


@dataclass(frozen=True, slots=True)
class Measured:
    """Microseconds of a product of 64 rows, in a chain of its own kind on one H200 (DECODE_STEPS.md)."""

    in_features: int
    out_features: int
    paired: bool
    before: float
    """By what made it before."""
    cuts: dict[tuple[int, int] | str, float]
    """By clusters, of slices and sharers."""


TABLE = [
    Measured(8192, 2048, False, 17.5, {(4, 1): 12.25, (4, 2): 12.58, _OTHERS: 13.64}),
    Measured(6144, 2048, False, 14.1, {(4, 1): 10.20, (4, 2): 10.52, _OTHERS: 11.41}),
    Measured(4096, 4096, False, 14.7, {(2, 1): 12.37, (2, 4): 12.92, (2, 2): 12.97, _OTHERS: 11.91}),
    Measured(2048, 3072, False, 6.2, {(4, 1): 6.54, (4, 2): 6.71, (2, 2): 7.00, _OTHERS: 8.66}),
    Measured(4096, 6144, False, 17.3, {(2, 4): 16.44, (2, 1): 16.98, (2, 2): 17.12, _OTHERS: 17.21}),
    Measured(14336, 4096, False, 38.8, {(2, 1): 33.96, (2, 2): 35.45, _OTHERS: 32.99}),
    Measured(2048, 4096, False, 7.5, {(2, 1): 7.81, (2, 4): 8.03, _OTHERS: 7.95}),
    Measured(2048, 2048, False, 5.2, {(4, 2): 5.33, (4, 1): 5.66, (2, 1): 5.99, _OTHERS: 7.74}),
    Measured(896, 4864, True, 9.2, {(1, 1): 6.82, (1, 4): 6.97, (1, 2): 7.22, _OTHERS: 10.10}),
    Measured(2048, 6144, True, 19.4, {(1, 4): 15.63, (1, 1): 16.33, (1, 2): 16.85, _OTHERS: 17.89}),
    Measured(2048, 8192, True, 24.2, {(1, 1): 19.73, (1, 2): 19.98, _OTHERS: 21.38}),
    Measured(4096, 14336, True, 65.3, {(1, 4): 60.86, _OTHERS: 60.46}),
    Measured(4864, 896, False, 5.6, {(8, 1): 5.27, (4, 1): 6.04, _OTHERS: 5.57}),
    Measured(896, 1152, False, 2.8, {(4, 1): 3.37, (4, 2): 3.42, _OTHERS: 2.95}),
    Measured(896, 896, False, 2.7, {(4, 1): 3.10, (4, 2): 3.14, _OTHERS: 2.81}),
    Measured(896, 151936, False, 76.2, {(1, 2): 82.52, (1, 4): 83.38, (1, 1): 83.58, _OTHERS: 86.12}),
    Measured(2048, 128256, False, 135.9, {(1, 2): 138.75, (1, 4): 138.84, (1, 1): 139.02, _OTHERS: 139.81}),
    Measured(4096, 128256, False, 265.1, {(1, 2): 264.18, (1, 1): 265.04, (1, 4): 265.97, _OTHERS: 266.59}),
]


def plan_of(case: Measured, num_tokens: int, gpu: Gpu = H200) -> object:
    return plan_many_rows(case.in_features, case.out_features, num_tokens, paired=case.paired, gpu=gpu)


@pytest.mark.parametrize("num_tokens", [33, 64])
@pytest.mark.parametrize("case", TABLE, ids=lambda case: f"{case.in_features}-{case.out_features}")
def test_what_is_launched_is_as_quick_as_the_quickest_that_was_measured(case: Measured, num_tokens: int) -> None:
    plan = plan_of(case, num_tokens)
    us = case.cuts[plan.slices, plan.sharers] if isinstance(plan, ClusterPlan) else case.before
    assert us <= WITHIN * min(case.before, *case.cuts.values())


def test_what_clusters_gain_nothing_for_stays_what_it_was() -> None:
    kinds = {WarpgroupPlan: [(2048, 3072), (896, 1152), (2048, 2048)], StreamKPlan: [(896, 151936), (2048, 128256)]}
    for kind, products in kinds.items():
        for in_features, out_features in products:
            assert isinstance(plan_many_rows(in_features, out_features, 64, paired=False, gpu=H200), kind)


def test_fewer_rows_more_rows_and_other_gpus_are_left_to_what_was_measured_there() -> None:
    case = TABLE[0]
    assert isinstance(plan_of(case, 33), ClusterPlan)
    assert isinstance(plan_of(case, 32), StreamKPlan)
    assert plan_of(case, 65) is None
    assert plan_of(case, 64, replace(H200, compute_capability=(8, 0))) is None
    assert plan_of(case, 64, replace(H200, compute_capability=(10, 0))) is None


@given(
    in_features=st.integers(1, 2_000).map(lambda pieces: 8 * pieces),
    out_features=st.integers(1, 4_000).map(lambda pieces: 8 * pieces),
    num_tokens=st.integers(1, 64),
    paired=st.booleans(),
    num_multiprocessors=st.integers(8, 200),
)
def test_a_plan_is_one_that_the_kernel_can_carry_out(
    in_features: int, out_features: int, num_tokens: int, paired: bool, num_multiprocessors: int
) -> None:
    plan = plan_clusters(in_features, out_features, num_tokens, paired, num_multiprocessors, LIMIT)
    tiles = -(-out_features // (ROWS // (1 + paired)))
    if plan is None:
        assert tiles > 4 * num_multiprocessors
        return
    assert 2 * (plan.shared_bytes + 1024) <= LIMIT + 1024
    assert num_tokens <= plan.tokens
    assert plan.slices * plan.sharers <= 8
    assert plan.tokens % (8 * plan.sharers) == 0
    assert plan.tokens // 2 // plan.slices >= 2, "a gate is finished where its value is"
    assert plan.slices == 1 or -(-in_features // 64) >= 2 * plan.slices
    columns, rows = plan.grid(out_features, num_tokens, paired)
    assert rows == 1
    assert tiles * plan.slices <= columns < (tiles + plan.sharers) * plan.slices


def test_what_the_kernel_cannot_do_has_no_plan() -> None:
    sizes = 132, LIMIT
    assert plan_clusters(4096, 4096, 64, False, *sizes) is not None
    assert plan_clusters(4100, 4096, 64, False, *sizes) is None
    assert plan_clusters(4096, 4100, 64, False, *sizes) is None
    assert plan_clusters(4096, 4096, 65, False, *sizes) is None
    assert plan_clusters(4096, 4096, 64, False, 132, 60 << 10) is None
