"""Plans of whole steps in clusters: room for everything, and somebody for every part. Arithmetic only."""

import dataclasses
from collections import Counter

import pytest

from pagedchat.ops.whole_step.plan import (
    CLUSTER,
    CLUSTER_SHARES,
    UNIT,
    PersistentPlan,
    PersistentShape,
    plan_clustered,
)
from tests.ops.whole_step.persistent_case import SHAPES

SHARED_LIMIT = 232_448
OPT = SHAPES["opt"]
UNGROUPED = [
    OPT,
    PersistentShape(768, 1536, 12, 12, 64, 16, gated=True),
    PersistentShape(768, 2048, 12, 12, 64, 16, gated=True),
    PersistentShape(576, 1536, 9, 9, 64, 16, gated=True),
    PersistentShape(384, 1536, 6, 6, 64, 16, gated=False),
]


def plan_for(shape: PersistentShape, num_multiprocessors: int = 132, context_len: int = 256) -> PersistentPlan:
    plan = plan_clustered(shape, 1, context_len, num_multiprocessors, SHARED_LIMIT)
    assert plan is not None
    return plan


def test_opt_has_a_cluster_for_each_head_and_18_more() -> None:
    plan = plan_for(OPT)
    assert (plan.num_thread_blocks, plan.cluster, plan.num_columns) == (120, 4, 48)
    assert (plan.num_warps, plan.num_splits, plan.qkv_units(OPT), plan.up_units(OPT)) == (12, 1, 6, 4)


@pytest.mark.parametrize("num_multiprocessors", [132, 148])
@pytest.mark.parametrize("shape", UNGROUPED, ids=str)
def test_what_a_thread_block_has_fits(shape: PersistentShape, num_multiprocessors: int) -> None:
    plan = plan_for(shape, num_multiprocessors)
    assert plan.num_thread_blocks % plan.cluster == 0
    assert plan.num_thread_blocks <= num_multiprocessors * 10 / 11
    for each in (plan, plan.screened(shape, 1, 1003, SHARED_LIMIT)):
        assert each is not None
        assert each.shared_bytes(shape, 1) <= SHARED_LIMIT


def test_the_quantized_head_of_a_screened_step_is_shared_by_all_thread_blocks() -> None:
    screened = plan_for(OPT).screened(OPT, 1, 50_272, SHARED_LIMIT)
    assert screened is not None
    assert screened.screened_tiles == 14
    assert 13 * 32 * 120 < 50_272 <= 14 * 32 * 120


@pytest.mark.parametrize("num_multiprocessors", [132, 148])
@pytest.mark.parametrize("shape", UNGROUPED, ids=str)
def test_every_unit_has_one_thread_block(shape: PersistentShape, num_multiprocessors: int) -> None:
    """The same arithmetic as that of kernels/whole_step/roles.cuh."""
    plan = plan_for(shape, num_multiprocessors)
    blocks = range(plan.num_thread_blocks)
    stream = Counter(unit for block in blocks if (unit := stream_unit(plan, shape, block)) is not None)
    assert stream == Counter(range(shape.hidden // UNIT))
    assert not any(attends(plan, block) and stream_unit(plan, shape, block) is not None for block in blocks)
    assert sum(attends(plan, block) for block in blocks) == CLUSTER_SHARES * shape.num_kv_heads
    qkv = Counter(row for block in blocks for row in qkv_rows(plan, shape, block))
    assert qkv == Counter(range(0, shape.qkv_rows, UNIT))
    middle = Counter(unit for block in blocks for unit in range(block, shape.middle // UNIT, len(blocks)))
    assert middle == Counter(range(shape.middle // UNIT))


def attends(plan: PersistentPlan, block: int) -> bool:
    return block < plan.num_columns and block % CLUSTER < CLUSTER_SHARES


def stream_unit(plan: PersistentPlan, shape: PersistentShape, block: int) -> int | None:
    """Of the residual stream: thread blocks without a head first, then the last ones of each cluster."""
    headless = plan.num_thread_blocks - plan.num_columns
    late = (CLUSTER - 1 - block % CLUSTER) * shape.num_kv_heads + block // CLUSTER
    unit = block - plan.num_columns if block >= plan.num_columns else headless + late
    return unit if unit < shape.hidden // UNIT and not attends(plan, block) else None


def qkv_rows(plan: PersistentPlan, shape: PersistentShape, block: int) -> list[int]:
    """First rows of the units of queries, keys and values, of which a head's lie `num_heads` heads apart."""
    if block >= plan.num_columns:
        return []
    of_vector = shape.head_size // UNIT
    own = range(block % CLUSTER * plan.qkv_units(shape), (block % CLUSTER + 1) * plan.qkv_units(shape))
    units = [divmod(unit, of_vector) for unit in own if unit < 3 * of_vector]
    return [(vector * shape.num_heads + block // CLUSTER) * shape.head_size + at * UNIT for vector, at in units]


@pytest.mark.parametrize(("shape", "longest"), [(OPT, 768), (UNGROUPED[2], 512), (UNGROUPED[3], 384)], ids=str)
def test_two_thread_blocks_attend_once_with_each_warp(shape: PersistentShape, longest: int) -> None:
    assert longest == CLUSTER_SHARES * 32 * plan_for(shape).num_warps
    assert plan_for(shape, context_len=longest) == plan_for(shape)
    assert plan_clustered(shape, 1, longest + 1, 132, SHARED_LIMIT) is None


@pytest.mark.parametrize(
    ("shape", "num_tokens", "num_multiprocessors", "shared_limit"),
    [
        (OPT, 2, 132, SHARED_LIMIT),
        (SHAPES["llama"], 1, 132, SHARED_LIMIT),
        (dataclasses.replace(OPT, num_kv_heads=6), 1, 132, SHARED_LIMIT),
        (OPT, 1, 128, SHARED_LIMIT),
        (OPT, 1, 108, 166_912),
        (OPT, 1, 132, 200_000),
        (dataclasses.replace(OPT, head_size=128, num_heads=6, num_kv_heads=6), 1, 132, SHARED_LIMIT),
    ],
    ids=["two tokens", "grouped heads", "pairs of heads", "114 in clusters", "A100", "little memory", "head size"],
)
def test_there_is_no_plan(
    shape: PersistentShape, num_tokens: int, num_multiprocessors: int, shared_limit: int
) -> None:
    assert plan_clustered(shape, num_tokens, 256, num_multiprocessors, shared_limit) is None
