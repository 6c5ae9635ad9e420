"""A whole decode step in one launch: the same as its parts one after another, launch after launch."""

import dataclasses

import pytest
import torch

from pagedchat.jit.driver import gpu
from pagedchat.ops.decode_state import DecodeState
from pagedchat.ops.norm import Norm
from pagedchat.ops.persistent_decode import PersistentDecode
from pagedchat.ops.persistent_model import PersistentModel, fold_norm
from pagedchat.ops.persistent_plan import MAX_TILES, PersistentPlan, PersistentShape, plan_persistent
from tests.ops.persistent_case import BLOCK_SIZE, SHAPES, VOCAB_SIZE, moved, random_model, random_state

H200 = (132, 232_448)
"""Multiprocessors, and bytes of shared memory that a thread block may have."""
FAMILIES = ("opt", "llama")


def plan_for(family: str, num_tokens: int, context_len: int) -> PersistentPlan:
    plan = plan_persistent(SHAPES[family], num_tokens, context_len, *H200)
    assert plan is not None
    return plan


def some_steps(model: PersistentModel, state: DecodeState, plan: PersistentPlan, count: int) -> list[torch.Tensor]:
    """Logits of steps that choose their own tokens, `[num_tokens, VOCAB_SIZE]` each."""
    decode = PersistentDecode(model, len(state.token_ids), plan)
    logits = torch.empty(len(state.token_ids), VOCAB_SIZE, dtype=model.head.dtype, device=model.head.device)
    results = []
    for _ in range(count):
        decode(state, logits)
        results.append(logits.clone())
    return results


def relative_error(values: torch.Tensor, expected: torch.Tensor) -> float:
    expected = expected.double().cpu()
    return float((values.double().cpu() - expected).norm() / expected.norm())


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
    ],
    ids=str,
)  # fmt: skip
def test_it_computes_what_its_parts_compute(
    family: str, dtype: torch.dtype, positions: list[int], context_len: int
) -> None:
    plan = plan_persistent(SHAPES[family], len(positions), context_len, *_limits())
    if plan is None:
        pytest.skip("this GPU has no room for it")
    model, state = random_model(family, dtype), random_state(positions)
    on_gpu = moved(model, "cuda:0"), moved(state, "cuda:0")
    logits = some_steps(*on_gpu, plan, 3)
    live = [row for row, position in enumerate(positions) if position >= 0]
    for result in logits:
        # Tokens may differ where two are as likely, so every step starts from those that the kernel chose.
        (expected,) = some_steps(model, state, plan, 1)
        assert relative_error(result[live], expected[live]) < (4e-3 if dtype == torch.float16 else 3e-2)
        chosen = result.argmax(dim=1).int().cpu()
        state = dataclasses.replace(state, token_ids=torch.where(state.positions < 0, state.token_ids, chosen))
    assert on_gpu[1].positions.tolist() == [position + 3 if position >= 0 else -1 for position in positions]
    assert on_gpu[1].token_ids[live].tolist() == logits[-1].argmax(dim=1)[live].tolist()
    assert on_gpu[1].step.tolist() == [9]


@pytest.mark.gpu
@pytest.mark.parametrize("family", FAMILIES)
def test_it_writes_the_slots_of_its_tokens_and_no_others(family: str) -> None:
    plan = plan_persistent(SHAPES[family], 2, 512, *_limits())
    if plan is None:
        pytest.skip("this GPU has no room for it")
    model, state = random_model(family, torch.float16), random_state([300, -1])
    there = moved(model, "cuda:0")
    some_steps(there, moved(state, "cuda:0"), plan, 1)
    some_steps(model, state, plan, 1)
    block = int(state.block_tables[0, 300 // BLOCK_SIZE])
    for layer, reference in zip(there.layers, model.layers, strict=True):
        for cache, expected in ((layer.key_cache, reference.key_cache), (layer.value_cache, reference.value_cache)):
            written = cache.cpu()
            slot = (
                (block, ..., 300 % BLOCK_SIZE, slice(None)) if cache.dim() == 5 else (block, ..., 300 % BLOCK_SIZE)
            )
            assert relative_error(written[slot], expected[slot]) < 4e-3
            written[slot] = expected[slot]
            assert torch.equal(written, expected)


@pytest.mark.gpu
def test_the_same_step_gives_the_same_bits() -> None:
    plan = plan_persistent(SHAPES["opt"], 1, 1024, *_limits())
    if plan is None:
        pytest.skip("this GPU has no room for it")
    model, state = moved(random_model("opt", torch.float16), "cuda:0"), random_state([700])
    first, second = (some_steps(model, moved(state, "cuda:0"), plan, 2) for _ in range(2))
    assert all(map(torch.equal, first, second))


def _limits() -> tuple[int, int]:
    facts = gpu(0)
    return facts.num_multiprocessors, facts.shared_bytes


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
@pytest.mark.parametrize("num_tokens", [1, 2])
@pytest.mark.parametrize("context_len", [256, 512, 1024, 2048])
def test_a_plan_has_a_thread_block_for_every_part(family: str, num_tokens: int, context_len: int) -> None:
    shape, plan = SHAPES[family], plan_for(family, num_tokens, context_len)
    assert plan.num_thread_blocks == 132
    assert plan.num_columns == num_tokens * shape.num_kv_heads * plan.num_splits
    assert plan.num_thread_blocks - plan.num_columns >= shape.hidden // 8
    assert plan.shared_bytes(shape, num_tokens) <= H200[1]
    assert plan.result_rows(shape) * num_tokens <= plan.num_threads
    assert 2 <= plan.num_tiles <= MAX_TILES
    for width in (shape.hidden, shape.middle, shape.attended):
        assert width % (32 * plan.num_warps) == 0


def test_a_long_context_is_split_where_there_are_thread_blocks_for_it() -> None:
    assert [plan_for("opt", 1, length).num_splits for length in (256, 512, 1024, 2048)] == [1, 1, 3, 3]
    assert [plan_for("opt", 2, length).num_splits for length in (256, 2048)] == [1, 1]


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
    assert plan_persistent(SHAPES["opt"], 3, 256, *H200) is None
    assert plan_persistent(SHAPES["opt"], 1, 256, 80, H200[1]) is None
    assert plan_persistent(SHAPES["opt"], 1, 256, 132, 100_000) is None


def test_too_many_layers_and_wrong_states_are_named() -> None:
    model, plan = random_model("opt", torch.float16), plan_for("opt", 1, 256)
    with pytest.raises(ValueError, match="model has 33 layers, expected at most 32"):
        PersistentDecode(dataclasses.replace(model, layers=model.layers[:1] * 33), 1, plan)
    decode = PersistentDecode(model, 1, plan)
    with pytest.raises(ValueError, match="token_ids has shape"):
        decode(random_state([1, 2]), torch.empty(2, VOCAB_SIZE, dtype=torch.float16))
    with pytest.raises(ValueError, match="logits has shape"):
        decode(random_state([1]), torch.empty(1, 7, dtype=torch.float16))
