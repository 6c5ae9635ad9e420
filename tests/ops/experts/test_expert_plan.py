"""Tiles of pairs: there is room for all of them, and the way that is named can do the sizes."""

import pytest
import torch

from pagedchat.ops.experts.expert_plan import (
    FEW_TILED,
    FEWEST_TILED,
    FEWEST_TILED_ROWS,
    FROM_WARPGROUPS,
    LOOP_ROWS,
    TILED_ROWS,
    ExpertPlan,
    WarpgroupsPlan,
    distinct_pairs,
    plan_experts,
    plan_few_bits_experts,
    plan_registers,
    plan_tiles,
)
from pagedchat.ops.experts.few_bits_tiles import TILE_ROWS, plan_tiles_of
from pagedchat.ops.experts.group_pairs import group_pairs
from pagedchat.ops.quantized.weight_form import Kind

H200, TURING = 227 << 10, 64 << 10
QWEN3, MIXTRAL, OLMOE, QWEN2 = (2048, 768, 128, 8), (4096, 14336, 8, 2), (2048, 1024, 64, 8), (2048, 1408, 60, 4)


@pytest.mark.parametrize("shape", [QWEN3, MIXTRAL, OLMOE, QWEN2], ids=str)
def test_few_pairs_meet_weights_in_registers_and_many_are_tiles(shape: tuple[int, int, int, int]) -> None:
    hidden, width, num_experts, per_token = shape
    ways = {}
    for num_tokens in (1, 8, 64, 256, 1500, 8192):
        plan = plan_experts(
            hidden, width, num_tokens * per_token, num_experts, tensor_cores=True, shared_limit=H200
        )
        ways[num_tokens] = plan.way
        if plan.way == "registers":
            assert all(
                plan_registers(inner, plan.tile_rows).token_tiles * 8 == plan.tile_rows for inner in shape[:2]
            )
    assert ways[1] == "registers"
    assert ways[8192] == "tiles"


def test_larger_tiles_for_more_pairs() -> None:
    sizes = [
        plan_experts(2048, 1024, 128 * average, 128, tensor_cores=True, shared_limit=H200).tile_rows
        for average in range(1, 300)
    ]
    assert sizes == sorted(sizes)
    assert set(sizes) == {8, FEWEST_TILED_ROWS, TILED_ROWS, 2 * TILED_ROWS}


@pytest.mark.parametrize(
    ("average", "way", "tile_rows"),
    [
        (1 / 16, "registers", 8), (1, "registers", 8), (2, "tiles", 32), (16, "tiles", 32), (32, "tiles", 64),
        (64, "warpgroups", 128), (256, "warpgroups", 128),
    ],
)  # fmt: skip
def test_what_was_the_quickest_is_taken(average: float, way: str, tile_rows: int) -> None:
    """Or within 6 % of it, of Mixtral's shape and of Qwen3-30B-A3B's, if that is no narrow one, on one H200, in
    docs/figures.md."""
    for hidden, width, num_experts, _ in (OLMOE, MIXTRAL) if way == "registers" else (QWEN3, MIXTRAL):
        pairs = max(1, int(average * num_experts))
        plan = plan_experts(
            hidden, width, pairs, num_experts, tensor_cores=True, shared_limit=H200, warpgroups=True
        )
        assert plan == ExpertPlan(way, tile_rows)


def test_narrow_experts_are_tiles_from_two_tokens_on() -> None:
    for num_tokens, width, way in (
        (1, 768, "registers"),
        (2, 768, "tiles"),
        (2, 1024, "registers"),
        (8, 768, "tiles"),
    ):
        plan = plan_experts(2048, width, 8 * num_tokens, 128, tensor_cores=True, shared_limit=H200)
        assert plan.way == way


def test_long_rows_that_are_no_whole_rounds_of_warps_are_tiles_from_one_token_on() -> None:
    for hidden, width, way in ((2880, 2880, "tiles"), (2048, 2880, "registers"), (4096, 2880, "registers")):
        assert plan_experts(hidden, width, 4, 32, tensor_cores=True, shared_limit=H200).way == way


def test_warpgroups_take_many_pairs_where_a_gpu_has_them() -> None:
    def plan(average: int, **others: bool) -> ExpertPlan:
        pairs = 128 * average
        return plan_experts(2048, 768, pairs, 128, tensor_cores=True, shared_limit=H200, **others)

    assert [plan(average, warpgroups=True).way for average in (FROM_WARPGROUPS - 1, FROM_WARPGROUPS, 1000)] == [
        "tiles", "warpgroups", "warpgroups"
    ]  # fmt: skip
    assert plan(1000) == plan(1000, warpgroups=True, batch_invariant=True) == ExpertPlan("tiles", 128)


def test_where_no_pair_may_depend_on_others_one_kernel_does_all_of_them() -> None:
    plans = [
        plan_experts(2048, 768, pairs, 128, tensor_cores=True, shared_limit=H200, batch_invariant=True)
        for pairs in (1, 8, 600, 128 * FEWEST_TILED, 128 * FEWEST_TILED + 8, 128 * FEW_TILED, 1 << 16)
    ]
    assert {plan.way for plan in plans} == {"tiles"}
    sizes = [plan.tile_rows for plan in plans]
    assert sizes == sorted(sizes)
    assert set(sizes) == {FEWEST_TILED_ROWS, TILED_ROWS, 2 * TILED_ROWS}
    odd = [
        plan_experts(2048, 764, pairs, 128, tensor_cores=True, shared_limit=H200, batch_invariant=True)
        for pairs in (1, 5000)
    ]
    assert odd == [ExpertPlan("cuda cores", LOOP_ROWS)] * 2


@pytest.mark.parametrize("others", [{}, {"warpgroups": True}, {"batch_invariant": True}], ids=str)
@pytest.mark.parametrize("shape", [QWEN3, MIXTRAL, OLMOE, QWEN2], ids=str)
def test_a_few_sizes_have_all_plans(shape: tuple[int, int, int, int], others: dict[str, bool]) -> None:
    hidden, width, num_experts, per_token = shape

    def plan(num_tokens: int) -> ExpertPlan:
        pairs = num_tokens * per_token
        return plan_experts(hidden, width, pairs, num_experts, tensor_cores=True, shared_limit=H200, **others)

    few = {plan(-(-pairs // per_token)) for pairs in distinct_pairs(num_experts)}
    assert few == {plan(num_tokens) for num_tokens in range(1, 6000)}


@pytest.mark.parametrize("shape", [QWEN3, MIXTRAL, OLMOE, QWEN2], ids=str)
def test_a_few_sizes_have_all_plans_of_few_bits(shape: tuple[int, int, int, int]) -> None:
    _, _, num_experts, per_token = shape
    few = {
        plan_few_bits_experts(-(-pairs // per_token) * per_token, num_experts)
        for pairs in distinct_pairs(num_experts, few_bits=True)
    }
    assert few == {plan_few_bits_experts(num * per_token, num_experts) for num in range(1, 6000)}
    assert {plan.tile_rows for plan in few} == set(TILE_ROWS)


@pytest.mark.parametrize("shared_limit", [H200, 163 << 10, 99 << 10])
@pytest.mark.parametrize("kind", ["int8", "fp8", "int4"])
@pytest.mark.parametrize("tile_rows", TILE_ROWS)
def test_tiles_of_few_bits_fit_into_shared_memory(tile_rows: int, kind: Kind, shared_limit: int) -> None:
    tiles = plan_tiles_of(kind, tile_rows, shared_limit)
    assert tiles.stages >= 2
    assert tiles.per_multiprocessor * (tiles.shared_bytes + 1024) <= shared_limit + 1024


@pytest.mark.parametrize(
    ("hidden", "width", "tensor_cores", "way"),
    [
        (2048, 768, False, "cuda cores"),
        (2048, 764, True, "cuda cores"),
        (2052, 768, True, "cuda cores"),
        (2056, 768, True, "tiles"),
        (2048, 776, True, "tiles"),
    ],
)
def test_what_registers_or_tensor_cores_cannot_do_goes_another_way(
    hidden: int, width: int, tensor_cores: bool, way: str
) -> None:
    plan = plan_experts(hidden, width, 8, 64, tensor_cores=tensor_cores, shared_limit=H200)
    assert plan.way == way
    assert plan.tile_rows == (LOOP_ROWS if way == "cuda cores" else FEWEST_TILED_ROWS)


@pytest.mark.parametrize("tile_rows", [1, 8, 64])
@pytest.mark.parametrize(("num_pairs", "num_experts"), [(1, 1), (8, 128), (64, 5), (300, 7), (9, 9)])
def test_there_is_room_for_every_tile_whoever_has_which_expert(
    num_pairs: int, num_experts: int, tile_rows: int
) -> None:
    plan = ExpertPlan("torch", tile_rows)
    room = plan.num_tiles(num_pairs, num_experts)
    worst = 0
    for taken in range(1, min(num_pairs, num_experts) + 1):
        # all but one have a single pair each, or a tile and one more: what wastes the most
        for each in (1, tile_rows + 1):
            rest = num_pairs - each * (taken - 1)
            if rest > 0:
                counts = torch.tensor([each] * (taken - 1) + [rest])
                experts = torch.repeat_interleave(torch.arange(taken), counts).int()[:, None]
                tiles = group_pairs(experts, num_experts, plan).tiles
                assert len(tiles) == room
                assert int(tiles[:, 2].sum()) == num_pairs
                worst = max(worst, int((tiles[:, 2] > 0).sum()))
    assert worst <= room
    if tile_rows > 1 and num_pairs <= num_experts:
        assert worst == room


@pytest.mark.parametrize("shared_limit", [TURING, 99 << 10, 163 << 10, H200])
def test_stages_fit_into_the_shared_memory(shared_limit: int) -> None:
    for average in (1, 60, 500):
        chosen = plan_experts(2056, 768, 8 * average, 8, tensor_cores=True, shared_limit=shared_limit)
        assert chosen.way == "tiles"
        plan = plan_tiles(chosen.tile_rows, shared_limit)
        assert plan.num_stages >= 2
        assert plan.fits(shared_limit)
    assert chosen.tile_rows == (TILED_ROWS if shared_limit == TURING else 2 * TILED_ROWS)


def test_the_ring_of_warpgroups_fits_into_the_shared_memory_of_hopper() -> None:
    assert WarpgroupsPlan().shared_bytes <= H200


def test_a_width_that_registers_cannot_share_out_is_named() -> None:
    with pytest.raises(ValueError, match="100 inner elements"):
        plan_registers(100, 8)
