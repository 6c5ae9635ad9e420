"""A whole decode step in one launch: the same as its parts one after another, launch after launch."""

import dataclasses

import pytest
import torch

from pagedchat.ops.common.norm import Norm
from pagedchat.ops.whole_step.model import fold_norm
from pagedchat.ops.whole_step.persistent_decode import PersistentDecode
from pagedchat.ops.whole_step.plan import MAX_TILES, PersistentPlan, PersistentShape, plan_persistent
from pagedchat.ops.whole_step.screened_head import screen_head
from tests.ops.whole_step.persistent_case import (
    SHAPES,
    VOCAB_SIZE,
    assert_same_caches,
    assert_steps_of_parts,
    gpu_limits,
    moved,
    random_model,
    random_state,
    slots_from,
    some_steps,
    with_tensors,
)

H200 = (132, 232_448)
"""Multiprocessors, and bytes of shared memory that a thread block may have."""
FAMILIES = ("opt", "llama")


def plan_for(family: str, num_tokens: int, context_len: int) -> PersistentPlan:
    plan = plan_persistent(SHAPES[family], num_tokens, context_len, *H200)
    assert plan is not None
    return plan


@pytest.mark.parametrize("family", FAMILIES)
def test_on_a_cpu_its_parts_run(family: str) -> None:
    model, state = random_model(family, torch.float16), random_state([40, -1])
    (logits,) = some_steps(model, state, plan_for(family, 2, 256), 1)
    assert state.token_ids[0] == logits[0].argmax()
    assert state.positions.tolist() == [41, -1]


@pytest.mark.gpu
@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
@pytest.mark.parametrize(
    ("positions", "context_len"),
    [
        ([0], 256), ([14], 256), ([31], 256), ([300], 512), ([382], 512), ([700], 1024), ([1300], 2048),
        ([40], 2048), ([0, 0], 256), ([5, 200], 256), ([390, 12], 512), ([33, -1], 256),
        ([7, 300, 41], 512), ([0, 150, 31, 190], 256), ([700, 12, -1, 400], 1024),
    ],
    ids=str,
)  # fmt: skip
def test_it_computes_what_its_parts_compute(
    family: str, dtype: torch.dtype, positions: list[int], context_len: int
) -> None:
    plan = plan_persistent(SHAPES[family], len(positions), context_len, *gpu_limits())
    if plan is None:
        pytest.skip("this GPU has no room for it")
    assert_steps_of_parts(random_model(family, dtype), random_state(positions), plan, 3)


@pytest.mark.gpu
@pytest.mark.parametrize("family", FAMILIES)
def test_it_writes_the_slots_of_its_tokens_and_no_others(family: str) -> None:
    plan = plan_persistent(SHAPES[family], 2, 512, *gpu_limits())
    if plan is None:
        pytest.skip("this GPU has no room for it")
    model, state = random_model(family, torch.float16), random_state([300, -1])
    slots, there = slots_from(state, 1), moved(model, "cuda:0")
    some_steps(there, moved(state, "cuda:0"), plan, 1)
    some_steps(model, state, plan, 1)
    assert_same_caches(there, model, slots, 4e-3)


@pytest.mark.gpu
def test_the_same_step_gives_the_same_bits() -> None:
    plan = plan_persistent(SHAPES["opt"], 1, 1024, *gpu_limits())
    if plan is None:
        pytest.skip("this GPU has no room for it")
    model, state = moved(random_model("opt", torch.float16), "cuda:0"), random_state([700])
    first, second = (some_steps(model, moved(state, "cuda:0"), plan, 2) for _ in range(2))
    assert all(map(torch.equal, first, second))


@pytest.mark.gpu
@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
@pytest.mark.parametrize(
    ("positions", "context_len"), [([14], 256), ([700], 1024), ([5, 200], 256), ([33, -1], 256)]
)
def test_a_screened_step_chooses_the_same_tokens(
    family: str, dtype: torch.dtype, positions: list[int], context_len: int
) -> None:
    num_tokens, (num_multiprocessors, shared_limit) = len(positions), gpu_limits()
    plan = plan_persistent(SHAPES[family], num_tokens, context_len, num_multiprocessors, shared_limit)
    screened = plan and plan.screened(SHAPES[family], num_tokens, VOCAB_SIZE, shared_limit)
    if plan is None or screened is None:
        pytest.skip("this GPU has no room for it")
    model, state = moved(random_model(family, dtype), "cuda:0"), moved(random_state(positions), "cuda:0")
    decode = PersistentDecode(
        moved(model, "cuda:0"), num_tokens, screened, screen_head(model.tensors.whole_head, model.tensors.last_norm)
    )
    twin = moved(state, "cuda:0")
    for _ in range(16):  # within the blocks of the shortest
        decode(twin)
        some_steps(model, state, plan, 1)
        assert torch.equal(twin.token_ids, state.token_ids)
        assert torch.equal(twin.positions, state.positions)


# --- norms ------------------------------------------------------------------------------------------


def test_a_norm_comes_in_after_the_product() -> None:
    torch.manual_seed(3)
    weight, bias, row = torch.randn(5, 64), torch.randn(5), 4 + torch.randn(64)
    norm = Norm("layer", torch.randn(64), torch.randn(64), 1e-5)
    scales, base = fold_norm(norm, weight, bias).unbind(1)
    factor = (row.var(correction=0) + norm.eps).rsqrt()
    found = factor * (weight @ (row * norm.weight) - row.mean() * scales) + base
    normed = torch.nn.functional.layer_norm(row, (64,), norm.weight, norm.bias, norm.eps)
    torch.testing.assert_close(found, weight @ normed + bias, rtol=1e-4, atol=1e-4)


def test_without_shifts_and_bias_nothing_is_added() -> None:
    constants = fold_norm(Norm("rms", torch.ones(8), None, 1e-5), torch.eye(8), None)
    assert constants.tolist() == [[1, 0]] * 8


# --- the plan ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("num_tokens", [1, 2, 3, 4])
@pytest.mark.parametrize("context_len", [256, 512, 1024, 2048])
def test_a_plan_has_a_thread_block_for_every_part(family: str, num_tokens: int, context_len: int) -> None:
    shape, plan = SHAPES[family], plan_for(family, num_tokens, context_len)
    assert plan.num_thread_blocks == 132
    assert plan.seats == (2 if family == "opt" and num_tokens == 4 else 1)
    assert plan.num_columns * plan.seats == num_tokens * shape.num_kv_heads * plan.num_splits
    assert plan.num_thread_blocks - plan.num_columns >= shape.hidden // 8
    assert plan.shared_bytes(shape, num_tokens) <= H200[1]
    assert plan.result_rows(shape) * num_tokens <= plan.num_threads
    assert 2 <= plan.num_tiles <= MAX_TILES
    for width in (shape.hidden, shape.middle, shape.attended):
        assert width % (32 * plan.num_warps) == 0


def test_a_long_context_is_split_where_there_are_thread_blocks_for_it() -> None:
    assert [plan_for("opt", 1, length).num_splits for length in (256, 512, 1024, 2048)] == [1, 1, 3, 3]
    assert [plan_for("opt", 2, length).num_splits for length in (256, 2048)] == [1, 1]


def test_tokens_share_thread_blocks_only_where_there_are_too_few() -> None:
    shape = SHAPES["opt"]
    plans = {count: plan_persistent(shape, 4, 256, count, H200[1]) for count in (119, 120, 143, 144)}
    assert plans[119] is None
    assert [plan.seats for plan in plans.values() if plan] == [2, 2, 1]


def test_tiles_of_the_vocabulary_take_what_the_weights_leave() -> None:
    shape, plan = SHAPES["opt"], plan_for("opt", 1, 256)
    assert plan.num_tiles == MAX_TILES
    least = dataclasses.replace(plan, num_tiles=0).shared_bytes(shape, 1)
    fewer = plan.with_tiles(shape, 1, least)
    assert 2 <= fewer.num_tiles < MAX_TILES
    assert fewer.shared_bytes(shape, 1) == least


@pytest.mark.parametrize(
    "shape",
    [
        dataclasses.replace(SHAPES["opt"], hidden=2048, middle=8192, num_heads=32, num_kv_heads=32),
        dataclasses.replace(SHAPES["opt"], head_size=128, num_heads=6, num_kv_heads=6),
        dataclasses.replace(SHAPES["opt"], hidden=800),
        dataclasses.replace(SHAPES["opt"], block_size=64),
        dataclasses.replace(SHAPES["opt"], num_kv_heads=1),
    ],
    ids=["too wide", "head size", "odd width", "block size", "group size"],
)
def test_what_the_kernel_has_no_code_or_room_for_has_no_plan(shape: PersistentShape) -> None:
    assert plan_persistent(shape, 1, 256, *H200) is None


def test_there_is_no_plan_for_more_tokens_or_a_smaller_gpu() -> None:
    assert plan_persistent(SHAPES["llama"], 5, 256, *H200) is None
    assert plan_persistent(SHAPES["opt"], 3, 256, 131, H200[1]) is None
    assert plan_persistent(SHAPES["opt"], 1, 256, 80, H200[1]) is None
    assert plan_persistent(SHAPES["opt"], 1, 256, 132, 100_000) is None


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("num_tokens", [1, 2])
def test_a_screened_step_has_room_and_reads_every_tile(family: str, num_tokens: int) -> None:
    shape, plan = SHAPES[family], plan_for(family, num_tokens, 256)
    screened = plan.screened(shape, num_tokens, 50_272, H200[1])
    assert screened is not None
    assert screened.num_tiles == plan.num_tiles
    assert (screened.screened_tiles - 1) * 32 * 132 < 50_272 <= screened.screened_tiles * 32 * 132
    assert screened.shared_bytes(shape, num_tokens) <= H200[1]
    assert plan.screened(shape, num_tokens, 10_000_000, H200[1]) is None


def test_a_screened_step_on_a_cpu_chooses_the_same_token() -> None:
    model, state, plan = random_model("opt", torch.float16), random_state([40]), plan_for("opt", 1, 256)
    screened, twin = plan.screened(SHAPES["opt"], 1, VOCAB_SIZE, H200[1]), moved(state, "cpu")
    assert screened is not None
    PersistentDecode(
        moved(model, "cpu"), 1, screened, screen_head(model.tensors.whole_head, model.tensors.last_norm)
    )(twin)
    some_steps(model, state, plan, 1)
    assert torch.equal(twin.token_ids, state.token_ids)


def test_a_quantized_head_and_logits_exclude_each_other() -> None:
    model, plan, state = random_model("opt", torch.float16), plan_for("opt", 1, 256), random_state([1])
    screened = plan.screened(SHAPES["opt"], 1, VOCAB_SIZE, H200[1])
    assert screened is not None
    quantized, logits = (
        screen_head(model.tensors.whole_head, model.tensors.last_norm),
        torch.empty(1, VOCAB_SIZE, dtype=torch.float16),
    )
    with pytest.raises(ValueError, match="plan has 1 tiles of a quantized head, and there is none"):
        PersistentDecode(model, 1, screened)
    with pytest.raises(ValueError, match="plan has 0 tiles of a quantized head, and there is one"):
        PersistentDecode(model, 1, plan, quantized)
    with pytest.raises(ValueError, match="logits are missing"):
        PersistentDecode(model, 1, plan)(state)
    with pytest.raises(ValueError, match="a screened step makes no logits"):
        PersistentDecode(model, 1, screened, quantized)(state, logits)


def test_too_many_layers_and_wrong_states_are_named() -> None:
    model, plan = random_model("opt", torch.float16), plan_for("opt", 1, 256)
    with pytest.raises(ValueError, match="model has 33 layers, expected at most 32"):
        PersistentDecode(with_tensors(model, layers=model.tensors.layers[:1] * 33), 1, plan)
    decode = PersistentDecode(model, 1, plan)
    with pytest.raises(ValueError, match="token_ids has shape"):
        decode(random_state([1, 2]), torch.empty(2, VOCAB_SIZE, dtype=torch.float16))
    with pytest.raises(ValueError, match="logits has shape"):
        decode(random_state([1]), torch.empty(1, 7, dtype=torch.float16))
