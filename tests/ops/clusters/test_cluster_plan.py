"""How products are cut for clusters, and which of them are: as quick as the quickest cut that was measured."""

from dataclasses import dataclass, replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pagedchat.jit.driver import Gpu
from pagedchat.ops.clusters.cluster_plan import ROWS, ClusterPlan, plan_clusters
from pagedchat.ops.products.many_rows_plan import ManyRowsPlan, plan_many_rows
from pagedchat.ops.products.stream_k_plan import StreamKPlan
from pagedchat.ops.products.warpgroup_plan import WarpgroupPlan
from pagedchat.ops.products.wide_plan import WidePlan
from pagedchat.ops.quantized.weight_form import WHOLE, WeightForm

LIMIT = 227 << 10
H200 = Gpu(0, "NVIDIA H200", (9, 0), 140 << 30, 132, LIMIT)
WITHIN = 1.04
PAIRED = True
_OTHERS = "others"
"""Cuts with more stages, warpgroups or thread blocks a multiprocessor than are kept; the quickest of them."""


@dataclass(frozen=True, slots=True)
class Measured:
    """Microseconds of a product in a chain of its own kind on one H200 (DECODE_STEPS.md)."""

    num_tokens: int
    in_features: int
    out_features: int
    paired: bool
    before: float
    """By what made it before, or a library if that was quicker."""
    cuts: dict[tuple[int, int, int] | str, float]
    """By clusters, of tokens of a tile, slices and sharers."""
    form: WeightForm = WHOLE


TABLE = [
    Measured(64, 8192, 2048, False, 16.4, {(64, 4, 1): 12.25, (64, 4, 2): 12.58, _OTHERS: 13.64}),
    Measured(64, 6144, 2048, False, 14.1, {(64, 4, 1): 10.20, (64, 4, 2): 10.52, _OTHERS: 11.41}),
    Measured(
        64, 4096, 4096, False, 14.7, {(64, 2, 1): 12.37, (64, 2, 4): 12.92, (64, 2, 2): 12.97, _OTHERS: 11.91}
    ),
    Measured(64, 2048, 3072, False, 6.2, {(64, 4, 1): 6.54, (64, 4, 2): 6.71, (64, 2, 2): 7.00, _OTHERS: 8.66}),
    Measured(
        64, 4096, 6144, False, 17.3, {(64, 2, 4): 16.44, (64, 2, 1): 16.98, (64, 2, 2): 17.12, _OTHERS: 17.21}
    ),
    Measured(64, 14336, 4096, False, 38.8, {(64, 2, 1): 33.96, (64, 2, 2): 35.45, _OTHERS: 32.99}),
    Measured(64, 2048, 2048, False, 5.2, {(64, 4, 2): 5.33, (64, 4, 1): 5.66, (64, 2, 1): 5.99, _OTHERS: 7.74}),
    Measured(64, 8960, 1536, False, 14.7, {(64, 8, 1): 10.54, (64, 4, 1): 11.75}),
    Measured(64, 2048, 32000, False, 40.0, {(64, 1, 1): 35.98, (64, 1, 4): 39.48}),
    Measured(64, 896, 4864, PAIRED, 9.2, {(64, 1, 1): 6.82, (64, 1, 4): 6.97, (64, 1, 2): 7.22, _OTHERS: 10.10}),
    Measured(64, 1536, 8960, PAIRED, 20.4, {(64, 1, 4): 20.60, (64, 1, 1): 20.87}),
    Measured(
        64, 2048, 6144, PAIRED, 19.4, {(64, 1, 4): 15.63, (64, 1, 1): 16.33, (64, 1, 2): 16.85, _OTHERS: 17.89}
    ),
    Measured(64, 2048, 8192, PAIRED, 24.2, {(64, 1, 1): 19.73, (64, 1, 2): 19.98, _OTHERS: 21.38}),
    Measured(64, 3584, 18944, PAIRED, 75.3, {(64, 1, 1): 72.82, (64, 1, 4): 73.03}),
    Measured(64, 4096, 14336, PAIRED, 65.3, {(64, 1, 4): 60.86, _OTHERS: 60.46}),
    Measured(64, 896, 1152, False, 2.8, {(64, 4, 1): 3.37, (64, 4, 2): 3.42, _OTHERS: 2.95}),
    Measured(64, 896, 896, False, 2.7, {(64, 4, 1): 3.10, (64, 4, 2): 3.14, _OTHERS: 2.81}),
    Measured(
        64, 896, 151936, False, 76.2, {(64, 1, 2): 82.52, (64, 1, 4): 83.38, (64, 1, 1): 83.58, _OTHERS: 86.1}
    ),
    Measured(64, 2048, 128256, False, 135.9, {(64, 1, 2): 138.75, (64, 1, 1): 139.02, _OTHERS: 139.81}),
    Measured(64, 4096, 128256, False, 265.1, {(64, 1, 2): 264.18, (64, 1, 1): 265.04, _OTHERS: 266.59}),
    Measured(48, 8192, 2048, False, 16.8, {(64, 4, 1): 12.65}),
    Measured(48, 6144, 2048, False, 13.9, {(64, 4, 1): 10.25}),
    Measured(48, 4096, 4096, False, 15.5, {(64, 2, 1): 12.71}),
    Measured(48, 896, 4864, PAIRED, 8.6, {(64, 1, 1): 6.74}),
    Measured(48, 2048, 6144, PAIRED, 18.1, {(64, 1, 4): 15.46}),
    Measured(48, 2048, 8192, PAIRED, 22.7, {(64, 1, 1): 19.13}),
    Measured(48, 4096, 14336, PAIRED, 66.1, {(64, 1, 4): 60.39}),
    Measured(32, 8192, 2048, False, 16.3, {(32, 4, 1): 11.64, (64, 4, 1): 14.32}),
    Measured(32, 6144, 2048, False, 12.7, {(32, 4, 1): 9.12, (64, 4, 1): 11.47}),
    Measured(32, 4096, 4096, False, 13.9, {(32, 2, 1): 11.41, (32, 2, 4): 11.39, (64, 2, 1): 15.56}),
    Measured(32, 14336, 4096, False, 35.8, {(32, 2, 1): 32.18, (32, 2, 4): 32.79, (64, 2, 1): 36.96}),
    Measured(32, 4096, 6144, False, 17.1, {(32, 2, 1): 14.97, (32, 2, 4): 15.10, (64, 2, 4): 17.60}),
    Measured(32, 4864, 896, False, 4.5, {(32, 8, 1): 4.73, (64, 8, 1): 5.58}),
    Measured(32, 2048, 3072, False, 5.1, {(32, 4, 1): 5.58, (64, 4, 1): 6.57}),
    Measured(32, 2048, 2048, False, 4.3, {(32, 4, 1): 4.39, (64, 4, 1): 5.58}),
    Measured(32, 896, 4864, PAIRED, 8.1, {(32, 1, 1): 6.14, (32, 1, 4): 6.16, (64, 1, 1): 7.20}),
    Measured(32, 2048, 6144, PAIRED, 17.5, {(32, 1, 4): 14.41, (32, 1, 1): 14.76, (64, 1, 4): 16.93}),
    Measured(32, 2048, 8192, PAIRED, 22.3, {(32, 1, 1): 18.19, (32, 1, 4): 22.21, (64, 1, 1): 21.77}),
    Measured(32, 4096, 14336, PAIRED, 64.8, {(32, 1, 4): 59.00, (32, 1, 1): 60.63, (64, 1, 4): 62.04}),
    Measured(16, 8192, 2048, False, 14.6, {(16, 4, 1): 11.37, (32, 4, 1): 11.48}),
    Measured(16, 6144, 2048, False, 11.4, {(16, 4, 1): 9.14, (32, 4, 1): 9.51}),
    Measured(16, 4096, 4096, False, 12.8, {(16, 2, 1): 10.89, (32, 2, 1): 11.48}),
    Measured(16, 14336, 4096, False, 34.6, {(16, 2, 1): 32.20, (32, 2, 1): 32.16}),
    Measured(16, 896, 4864, PAIRED, 7.7, {(16, 1, 1): 6.12, (32, 1, 1): 6.21}),
    Measured(16, 2048, 8192, PAIRED, 22.7, {(16, 1, 1): 18.49, (32, 1, 1): 19.14}),
]

_INT8, _INT4 = WeightForm("int8"), WeightForm("int4", 128, has_minimums=True)
OF_FEW_BITS = [
    Measured(64, 4096, 6144, False, 22.3, {(64, 4, 1): 13.7, (64, 4, 2): 14.3, (64, 2, 1): 15.6}, _INT8),
    Measured(64, 4096, 4096, False, 19.3, {(64, 4, 1): 13.2, (64, 4, 2): 13.6, (64, 2, 1): 14.7}, _INT8),
    Measured(64, 4096, 14336, PAIRED, 61.6, {(64, 1, 1): 40.5, (64, 1, 2): 41.3, (64, 1, 4): 42.4}, _INT8),
    Measured(64, 14336, 4096, False, 36.7, {(64, 8, 1): 31.9, (64, 4, 1): 36.4, (64, 2, 1): 41.5}, _INT8),
    Measured(16, 4096, 6144, False, 17.0, {(16, 4, 1): 11.6, (16, 4, 2): 11.9, (16, 2, 1): 12.6}, _INT8),
    Measured(16, 4096, 4096, False, 14.6, {(16, 4, 1): 9.8, (16, 4, 2): 10.4, (16, 2, 1): 11.7}, _INT8),
    Measured(16, 4096, 14336, PAIRED, 41.0, {(16, 1, 1): 34.4, (16, 1, 2): 34.7}, _INT8),
    Measured(16, 14336, 4096, False, 25.5, {(16, 4, 1): 28.9, (16, 4, 2): 29.8}, _INT8),
    Measured(64, 4096, 6144, False, 20.8, {(64, 4, 1): 14.5, (64, 4, 2): 14.8, (64, 2, 1): 15.1}, _INT4),
    Measured(64, 4096, 4096, False, 18.8, {(64, 4, 1): 13.9, (64, 2, 1): 14.3, (64, 8, 1): 14.5}, _INT4),
    Measured(64, 4096, 14336, PAIRED, 53.6, {(64, 1, 1): 41.6, (64, 1, 2): 42.0, (64, 1, 4): 43.7}, _INT4),
    Measured(64, 14336, 4096, False, 38.1, {(64, 8, 1): 32.3, (64, 4, 1): 38.3}, _INT4),
    Measured(16, 4096, 6144, False, 16.5, {(16, 4, 1): 10.6, (16, 4, 2): 10.9, (16, 2, 1): 12.4}, _INT4),
    Measured(16, 4096, 4096, False, 13.3, {(16, 4, 1): 10.1, (16, 4, 2): 10.2, (16, 2, 1): 10.9}, _INT4),
    Measured(16, 4096, 14336, PAIRED, 38.5, {(16, 1, 1): 33.8, (16, 1, 2): 34.0}, _INT4),
    Measured(16, 14336, 4096, False, 27.2, {(16, 4, 1): 31.2, (16, 4, 2): 31.0}, _INT4),
    # On one H100, before two sets of operands took turns.
    Measured(64, 2048, 4096, False, 15.1, {(64, 4, 1): 9.9, (64, 2, 2): 9.6, (64, 2, 4): 9.6}, _INT8),
    Measured(64, 2048, 2048, False, 13.8, {(64, 4, 1): 6.1, (64, 4, 2): 6.2, (64, 8, 1): 6.9}, _INT8),
    Measured(64, 2048, 6144, PAIRED, 24.2, {(64, 2, 4): 15.1, (64, 2, 1): 14.8, (64, 1, 4): 15.2}, _INT8),
    Measured(64, 6144, 2048, False, 22.1, {(64, 8, 1): 11.8, (64, 4, 1): 12.3}, _INT8),
    Measured(64, 896, 1152, False, 11.2, {(64, 8, 1): 3.9, (64, 4, 1): 4.3}, _INT8),
    Measured(64, 896, 4864, PAIRED, 17.1, {(64, 1, 1): 8.0, (64, 1, 2): 8.1, (64, 2, 1): 9.8}, _INT8),
    Measured(64, 4864, 896, False, 19.0, {(64, 8, 1): 6.9, (64, 4, 1): 9.9}, _INT8),
    Measured(32, 4096, 6144, False, 21.4, {(32, 4, 1): 13.9, (32, 4, 2): 14.0, (32, 2, 1): 15.1}, _INT8),
    Measured(32, 14336, 4096, False, 35.0, {(32, 8, 1): 31.5, (32, 4, 1): 34.9, (32, 4, 2): 34.0}, _INT8),
    Measured(16, 2048, 6144, PAIRED, 18.6, {(16, 2, 1): 13.1, (16, 2, 2): 13.5, (16, 1, 1): 13.5}, _INT8),
]
"""Of weights of few bits; `before` is `few_bits_linear` with what goes around it."""

Cut = tuple[int, int, bool]
"""Slices, sharers, and whether a thread block takes more than half of a multiprocessor."""


@dataclass(frozen=True, slots=True)
class InStep:
    """What a product costs a layer of a whole captured step of its model, in microseconds more than what was taken
    before thread blocks stood alone (DECODE_STEPS.md)."""

    num_tokens: int
    in_features: int
    out_features: int
    paired: bool
    before: Cut | None
    """None: `WarpgroupPlan`."""
    cuts: dict[Cut, float]


IN_STEPS = [
    InStep(64, 14336, 4096, False, (2, 1, False), {(2, 1, True): -7.06, (4, 1, False): 1.39, (2, 4, False): -2.10}),
    InStep(32, 14336, 4096, False, (2, 1, False), {(2, 1, True): -3.98, (4, 1, False): 1.06, (2, 4, False): -0.24}),
    InStep(64, 4096, 4096, False, (2, 1, False), {(2, 1, True): -0.48, (4, 1, False): 4.19, (1, 1, True): 0.91}),
    InStep(32, 4096, 4096, False, (2, 1, False), {(2, 1, True): 0.29, (4, 1, False): 4.33, (1, 1, True): 0.71}),
    InStep(64, 4096, 6144, False, (2, 4, False), {(2, 1, True): 4.20, (4, 1, False): 2.70, (1, 1, True): 0.31}),
    InStep(64, 2048, 4096, False, None, {(2, 1, True): -1.80, (2, 1, False): -0.39, (1, 1, True): -1.72}),
    InStep(48, 2048, 4096, False, None, {(2, 1, True): -0.54, (2, 1, False): 1.22, (1, 1, True): 0.46}),
    InStep(32, 2048, 4096, False, None, {(2, 1, False): 0.29, (4, 1, False): 3.62}),
    InStep(16, 2048, 4096, False, None, {(2, 1, True): 0.74, (2, 1, False): 0.25, (1, 1, True): 1.34}),
    InStep(64, 2048, 3072, False, None, {(2, 1, True): -0.25, (4, 1, False): 0.96, (1, 1, True): 0.84}),
    InStep(64, 2048, 6144, PAIRED, (1, 4, False), {(1, 1, False): 0.85, (2, 1, False): 4.13, (1, 1, True): 1.92}),
    InStep(32, 2048, 6144, PAIRED, (1, 4, False), {(1, 1, False): -1.41, (2, 1, False): 2.9, (1, 2, False): -0.34}),
    InStep(64, 6144, 2048, False, (4, 1, False), {(8, 1, False): 0.89, (2, 1, True): 0.10, (4, 2, False): 0.04}),
    InStep(64, 4864, 896, False, None, {(4, 1, False): 1.06, (8, 1, False): 0.35, (2, 1, True): 2.34}),
]  # fmt: skip
NOISE_US = 0.35
"""Of a layer, between the same step measured twice."""


def plan_of(case: Measured | InStep, gpu: Gpu = H200, form: WeightForm = WHOLE) -> object:
    sizes = case.in_features, case.out_features, case.num_tokens
    return plan_many_rows(*sizes, paired=case.paired, gpu=gpu, form=form)


@pytest.mark.parametrize(
    "case",
    TABLE + OF_FEW_BITS,
    ids=lambda case: f"{case.num_tokens}-{case.in_features}-{case.out_features}-{case.form.kind}",
)
def test_what_is_launched_is_as_quick_as_the_quickest_that_was_measured(case: Measured) -> None:
    plan = plan_of(case, form=case.form)
    us = case.cuts[plan.tokens, plan.slices, plan.sharers] if isinstance(plan, ClusterPlan) else case.before
    assert us <= WITHIN * min(case.before, *case.cuts.values())


@pytest.mark.parametrize(
    "case", IN_STEPS, ids=lambda case: f"{case.num_tokens}-{case.in_features}-{case.out_features}"
)
def test_what_is_launched_costs_a_step_as_little_as_the_best_that_was_measured(case: InStep) -> None:
    plan = plan_of(case)
    cut = (plan.slices, plan.sharers, is_alone(plan)) if isinstance(plan, ClusterPlan) else None
    us = 0.0 if cut == case.before else case.cuts[cut]  # type: ignore[index]
    assert us <= min(0.0, *case.cuts.values()) + NOISE_US


def is_alone(plan: ClusterPlan) -> bool:
    return 2 * (plan.shared_bytes + 1024) > LIMIT + 1024


def test_a_thread_block_takes_more_than_half_of_a_multiprocessor_where_each_can_have_its_own() -> None:
    def alone(out_features: int, num_multiprocessors: int = 132) -> bool:
        plan = plan_clusters(14336, out_features, 64, False, num_multiprocessors, LIMIT)
        assert plan is not None
        assert plan.slices == 2
        return is_alone(plan)

    assert [alone(4096), alone(66 * 64), alone(67 * 64)] == [True, True, False]
    assert not alone(4096, 127)


def test_groups_that_are_no_whole_chunks_are_left_to_others() -> None:
    def plan(form: WeightForm, in_features: int = 4096) -> ManyRowsPlan | None:
        return plan_many_rows(in_features, 4096, 64, paired=False, gpu=H200, form=form)

    for form in (WeightForm("int8", 32), WeightForm("int4", 128, has_minimums=True), WeightForm("fp8", 128)):
        assert isinstance(plan(form), ClusterPlan)
    for group in (16, 48, 96):
        assert plan(WeightForm("int4", group)) is None
        assert plan(WeightForm("int8", group)) is None
    assert plan(WeightForm("int4", 128), 3584) is None, "scales of 28 groups are no whole pieces of 16 bytes"
    assert plan(WeightForm("int4", 32), 3584) is not None
    assert plan(WeightForm("int8", has_minimums=True)) is None


@pytest.mark.parametrize(("num_tokens", "of_launch"), [(64, 64), (65, 64), (80, 64), (128, 64), (129, None)])
def test_few_bits_go_by_two_launches_at_most(num_tokens: int, of_launch: int | None) -> None:
    plan = plan_many_rows(4096, 4096, num_tokens, paired=False, gpu=H200, form=_INT8)
    assert (None if plan is None else plan.tokens) == of_launch  # type: ignore[union-attr]


def test_small_weights_stay_vocabularies_stream_and_many_rows_are_left_to_others() -> None:
    def kind(in_features: int, out_features: int, num_tokens: int, paired: bool = False) -> type | None:
        plan = plan_many_rows(in_features, out_features, num_tokens, paired=paired, gpu=H200)
        return None if plan is None else type(plan)

    assert kind(2048, 3072, 64) is WarpgroupPlan
    assert kind(2048, 2048, 64) is WarpgroupPlan, (
        "by clusters behind another product by clusters a step takes longer"
    )
    assert kind(2048, 4096, 64) is ClusterPlan
    assert kind(2048, 4096, 32) is WarpgroupPlan
    assert kind(4096, 2048, 64) is WarpgroupPlan, "four slices were not measured"
    assert kind(4864, 896, 64) is WarpgroupPlan, (
        "in a step it is there when the tokens come; by clusters it takes longer"
    )
    assert kind(896, 151936, 64) is StreamKPlan
    assert kind(6144, 2048, 9) is ClusterPlan
    assert kind(3584, 18944, 64, PAIRED) is ClusterPlan, "4.5 tiles a multiprocessor"
    assert kind(6144, 2048, 64) is ClusterPlan
    assert kind(6144, 2048, 65) is None
    assert kind(2048, 6144, 64, PAIRED) is ClusterPlan
    assert kind(2048, 6144, 65, PAIRED) is WidePlan


def test_other_gpus_have_no_such_plan() -> None:
    for capability in ((8, 0), (10, 0), (12, 0)):
        assert plan_of(TABLE[0], replace(H200, compute_capability=capability)) is None


def test_fewer_multiprocessors_have_fewer_slices_of_a_tile() -> None:
    def slices(num_multiprocessors: int) -> int:
        plan = plan_clusters(8192, 2048, 64, False, num_multiprocessors, LIMIT)
        assert plan is not None
        return plan.slices

    assert [slices(count) for count in (132, 66, 33, 16)] == [4, 2, 1, 1]


def test_every_slice_has_gates_and_values_to_finish_so_few_rows_have_fewer_slices() -> None:
    def slices(num_tokens: int) -> int:
        plan = plan_clusters(8960, 1536, num_tokens, False, 132, LIMIT)
        assert plan is not None
        return plan.slices

    assert [slices(count) for count in (9, 16, 17, 64)] == [4, 4, 8, 8]


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
        assert tiles > 4.5 * num_multiprocessors
        return
    assert plan.shared_bytes <= LIMIT
    assert not is_alone(plan) or tiles * plan.slices <= num_multiprocessors, "else two on a multiprocessor"
    assert num_tokens <= plan.tokens
    assert plan.slices * plan.sharers <= 8
    assert plan.tokens % (8 * plan.sharers) == 0
    assert plan.tokens // 2 // plan.slices >= 2, "a gate is finished where its value is"
    assert plan.slices == 1 or -(-in_features // 64) >= 2 * plan.slices
    assert tiles * plan.slices <= plan.num_blocks(out_features, paired) < (tiles + plan.sharers) * plan.slices


def test_what_the_kernel_cannot_do_has_no_plan() -> None:
    sizes = 132, LIMIT
    assert plan_clusters(4096, 4096, 64, False, *sizes) is not None
    assert plan_clusters(4100, 4096, 64, False, *sizes) is None
    assert plan_clusters(4096, 4100, 64, False, *sizes) is None
    assert plan_clusters(4096, 4096, 65, False, *sizes) is None
    assert plan_clusters(4096, 4096, 64, False, 132, 40 << 10) is None
