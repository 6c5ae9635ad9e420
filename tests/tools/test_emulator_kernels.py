"""The project's own kernels on the CPU, in several orders of warps, against torch or float64.

Small shapes of one variant each: what CI, which has no GPU, can say of the kernels.
"""

from collections.abc import Iterator
from dataclasses import replace

import pytest
import torch

from pagedchat.ops.attention.call import AttentionCall, AttentionOptions
from pagedchat.ops.attention.decode_split import decode_split, launch_split
from pagedchat.ops.attention.prefill_wgmma import launch as launch_wgmma
from pagedchat.ops.products import few_rows_plan, streamed_plan
from pagedchat.ops.products.add_norm import add_norm
from pagedchat.ops.products.small_batch_linear import small_batch_linear
from pagedchat.ops.products.warpgroup_linear import warpgroup_linear
from pagedchat.ops.products.warpgroup_plan import WarpgroupPlan
from pagedchat.ops.sampling.decode_state import find_most_likely
from pagedchat.ops.whole_step.persistent_decode import PersistentDecode
from pagedchat.ops.whole_step.plan import PersistentShape, plan_persistent
from tests.ops.attention.changed_case import without_newest
from tests.ops.cuda_layout_case import check_attention, make_layout_case, results
from tests.ops.products.small_batch_case import allowed, error, exact_norm, make_norm, normal
from tests.ops.whole_step import persistent_case
from tests.tools.emulator_case import needs_compiler
from tools.emulator.kernel import SHARED_LIMIT
from tools.emulator.ops import EmulatedKernels, kernels_on_cpu

pytestmark = needs_compiler

HALF = torch.float16
SEEDS = [0, 1, 2]
FEW_MULTIPROCESSORS = 28


@pytest.fixture(params=SEEDS)
def kernels(request: pytest.FixtureRequest) -> Iterator[EmulatedKernels]:
    """Ops launch their kernels, and have done so at the end."""
    with kernels_on_cpu(seed=request.param, num_multiprocessors=FEW_MULTIPROCESSORS) as emulated:
        yield emulated
    assert emulated.num_launches > 0


def test_add_norm(kernels: EmulatedKernels) -> None:
    norm = make_norm("layer", 768, "cpu", HALF)
    assert norm is not None
    hidden, update = (normal(5, 768, device="cpu", dtype=HALF, seed=seed) for seed in (1, 2))
    before = hidden.clone()
    normed = add_norm(hidden, update, norm)
    assert torch.equal(hidden, before + update)
    assert error(normed, exact_norm(norm, hidden.double())) < allowed(HALF)


@pytest.mark.parametrize("vocab_size", [304, 1003])
def test_most_likely_tokens(kernels: EmulatedKernels, vocab_size: int) -> None:
    logits = normal(3, vocab_size, device="cpu", dtype=HALF)
    logits[0, 5], logits[0, 2] = 99, 99
    tokens = torch.full((4,), -7, dtype=torch.int32)
    find_most_likely(tokens[:3], logits)
    assert tokens.tolist() == [2, *logits[1:].float().max(dim=1).indices.tolist(), -7]


def test_small_batch_linear_normed_and_paired(kernels: EmulatedKernels) -> None:
    rows, norm = normal(5, 256, device="cpu", dtype=HALF), make_norm("rms", 256, "cpu", HALF)
    weight = normal(64, 256, device="cpu", dtype=HALF, scale=1 / 16)
    gate, value = (exact_norm(norm, rows.double()) @ weight.double().T).chunk(2, dim=1)
    found = small_batch_linear(rows, weight, norm=norm, activation="silu", paired=True)
    assert error(found, gate * gate.sigmoid() * value) < allowed(HALF)


def test_small_batch_linear_with_a_last_round_of_weights_that_is_short(kernels: EmulatedKernels) -> None:
    rows, bias = normal(3, 608, device="cpu", dtype=HALF), normal(32, device="cpu", dtype=HALF)
    weight = normal(32, 608, device="cpu", dtype=HALF, scale=1 / 24)
    found = small_batch_linear(rows, weight, bias=bias, activation="relu")
    assert error(found, (rows.double() @ weight.double().T + bias.double()).relu()) < allowed(HALF)


@pytest.mark.parametrize(
    "plan",
    [WarpgroupPlan(tokens=16, columns=64, cluster=1, warpgroups=2, stages=16), WarpgroupPlan(64, 32, 2, 2, 5)],
    ids=["all tokens at once", "a ring of tokens, in a cluster"],
)
def test_warpgroup_linear(plan: WarpgroupPlan, kernels: EmulatedKernels, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pagedchat.ops.products.warpgroup_linear.plan_many_rows", lambda *_sizes, **_: plan)
    rows, residual = (normal(70, width, device="cpu", dtype=HALF) for width in (1024, 64))
    weight = normal(64, 1024, device="cpu", dtype=HALF, scale=1 / 32)
    found = warpgroup_linear(rows, weight, residual=residual)
    assert kernels.launched == {"warpgroup_linear"}
    assert error(found, rows.double() @ weight.double().T + residual.double()) < allowed(HALF)


def test_weights_that_stream(kernels: EmulatedKernels, monkeypatch: pytest.MonkeyPatch) -> None:
    # A ring of three stages for more of them, units of 8 rows that thread blocks take in turns.
    monkeypatch.setattr(few_rows_plan, "LEAST_SIDE", 16)
    monkeypatch.setattr(streamed_plan, "RING_BYTES", 50 << 10)
    streamed_plan.plan_stream.cache_clear()
    rows, norm = normal(3, 1024, device="cpu", dtype=HALF), make_norm("rms", 1024, "cpu", HALF)
    weight = normal(1008, 1024, device="cpu", dtype=HALF, scale=1 / 32)
    gate, value = (exact_norm(norm, rows.double()) @ weight.double().T).chunk(2, dim=1)
    found = small_batch_linear(rows, weight, norm=norm, activation="silu", paired=True)
    assert kernels.launched == {"streamed_linear"}
    assert error(found, gate * gate.sigmoid() * value) < allowed(HALF)


def test_units_that_share_a_long_input(kernels: EmulatedKernels, monkeypatch: pytest.MonkeyPatch) -> None:
    # Four units a thread block but for the last ones, which have three; a last stage that is short.
    monkeypatch.setattr(few_rows_plan, "LEAST_SIDE", 16)
    monkeypatch.setattr(streamed_plan, "RING_BYTES", 60 << 10)
    streamed_plan.plan_stream.cache_clear()
    rows, residual = normal(8, 4360, device="cpu", dtype=HALF), normal(8, 896, device="cpu", dtype=HALF)
    weight = normal(896, 4360, device="cpu", dtype=HALF, scale=1 / 66)
    found = small_batch_linear(rows, weight, residual=residual)
    assert kernels.launched == {"streamed_linear"}
    assert error(found, rows.double() @ weight.double().T + residual.double()) < allowed(HALF)


@pytest.mark.parametrize("kind", ["layer", "rms"])
@pytest.mark.parametrize("num_tokens", [2, 3])
def test_norms_of_rows_that_no_stage_shares_out(
    num_tokens: int, kind: str, kernels: EmulatedKernels, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(few_rows_plan, "LEAST_SIDE", 16)
    rows, norm = normal(num_tokens, 1304, device="cpu", dtype=HALF), make_norm(kind, 1304, "cpu", HALF)
    weight = normal(896, 1304, device="cpu", dtype=HALF, scale=1 / 36)
    found = small_batch_linear(rows, weight, norm=norm)
    assert kernels.launched == {"streamed_linear"}
    assert error(found, exact_norm(norm, rows.double()) @ weight.double().T) < allowed(HALF)


def test_thread_blocks_that_share_a_sequence_merge(kernels: EmulatedKernels) -> None:
    case = make_layout_case([5, 300, 0, 64], dtype=HALF)
    call = case.call(AttentionOptions(scale=0.125))
    decode_split(call, max_seq_len=300)
    check_attention(case, call.options, *results(call))


@pytest.mark.parametrize("window", [None, 40])
def test_newest_keys_and_values_are_written_while_they_are_attended_to(
    window: int | None, kernels: EmulatedKernels
) -> None:
    case = make_layout_case([1, 16, 17, 0, 300], dtype=HALF)
    heads, *caches = without_newest(case)
    options, output, lse = (
        AttentionOptions(scale=0.1, sliding_window=window),
        case.poisoned_output(),
        case.poisoned_lse(),
    )
    call = AttentionCall(heads[:, :4], *caches, case.block_tables, case.seq_lens, options, output, lse)
    launch_split(call, 300, None, overlap=True, writes_new=True)
    check_attention(case, options, output, lse)
    for cache, wanted in zip(caches, (case.key_cache, case.value_cache), strict=True):
        torch.testing.assert_close(cache, wanted, rtol=0.0, atol=0.0, equal_nan=True)


def test_prefill_by_warpgroups(kernels: EmulatedKernels) -> None:
    # More tiles of keys than there are buffers for them.
    case = make_layout_case([600, 9], [30, 9], num_heads=2, num_kv_heads=1, dtype=HALF)
    call = case.call(AttentionOptions(scale=0.125))
    launch_wgmma(call, case.cu_seqlens_q, case.max_query_len)
    check_attention(case, call.options, *results(call))


SMALL = PersistentShape(192, 192, 3, 3, 64, persistent_case.BLOCK_SIZE, gated=False)


@pytest.mark.parametrize("seed", [0, 1])
def test_a_whole_step_in_one_launch(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(persistent_case.SHAPES, "opt", SMALL)
    monkeypatch.setattr(persistent_case, "NUM_LAYERS", 2)
    monkeypatch.setattr(persistent_case, "VOCAB_SIZE", 203)
    plan = plan_persistent(SMALL, 1, 256, FEW_MULTIPROCESSORS, SHARED_LIMIT)
    assert plan is not None
    model, state = persistent_case.random_model("opt", HALF), persistent_case.random_state([40])
    twin, expected, logits = (
        persistent_case.moved(state, "cpu"),
        torch.empty(1, 203).half(),
        torch.empty(1, 203).half(),
    )
    PersistentDecode(model, 1, plan)(twin, expected)
    with kernels_on_cpu(seed=seed, num_multiprocessors=FEW_MULTIPROCESSORS) as emulated:
        PersistentDecode(model, 1, plan)(state, logits)
    assert emulated.num_launches == 1
    assert error(logits, expected.double()) < 4e-3
    assert (state.token_ids.item(), state.positions.item()) == (logits.argmax().item(), 41)


@pytest.mark.parametrize(("num_kv_heads", "positions"), [(1, [70, 9]), (3, [20])], ids=["grouped", "odd units"])
def test_a_whole_step_with_gates(num_kv_heads: int, positions: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    shape = PersistentShape(192, 192, 3, num_kv_heads, 64, persistent_case.BLOCK_SIZE, gated=True)
    found, expected = _logits_of_a_step("llama", shape, positions, 0.0, monkeypatch)
    assert error(found, expected.double()) < 4e-3


@pytest.mark.parametrize("num_tiles", [2, 3, 8])
def test_a_whole_step_with_many_more_tiles_than_room(num_tiles: int, monkeypatch: pytest.MonkeyPatch) -> None:
    found, expected = _logits_of_a_step("opt", SMALL, [40], 0.0, monkeypatch, vocab_size=8003, num_tiles=num_tiles)
    assert error(found, expected.double()) < 4e-3


def test_a_whole_step_with_a_stream_far_from_zero(monkeypatch: pytest.MonkeyPatch) -> None:
    found, expected = _logits_of_a_step("opt", SMALL, [40], 5.0, monkeypatch)
    assert error(found, expected.double()) < 4e-3


def _logits_of_a_step(
    family: str,
    shape: PersistentShape,
    positions: list[int],
    shift: float,
    monkeypatch: pytest.MonkeyPatch,
    vocab_size: int = 203,
    num_tiles: int | None = None,
) -> tuple[torch.Tensor, torch.Tensor]:
    """From the kernel, which has chosen the next tokens by them, and from its parts.

    Embeddings are moved by `shift`, one dimension by ten times as much; `num_tiles` in the place of the plan's.
    """
    monkeypatch.setitem(persistent_case.SHAPES, family, shape)
    monkeypatch.setattr(persistent_case, "NUM_LAYERS", 2)
    monkeypatch.setattr(persistent_case, "VOCAB_SIZE", vocab_size)
    plan = plan_persistent(shape, len(positions), 256, FEW_MULTIPROCESSORS, SHARED_LIMIT)
    assert plan is not None
    plan = replace(plan, num_tiles=num_tiles or plan.num_tiles)
    model, state = persistent_case.random_model(family, HALF), persistent_case.random_state(positions)
    model.tensors.token_vectors.add_(shift)[:, 7].add_(10 * shift)
    found, expected = torch.empty(2, len(positions), vocab_size).half()
    PersistentDecode(model, len(positions), plan)(persistent_case.moved(state, "cpu"), expected)
    with kernels_on_cpu(seed=1, num_multiprocessors=FEW_MULTIPROCESSORS):
        PersistentDecode(model, len(positions), plan)(state, found)
    assert state.token_ids.tolist() == found.argmax(dim=1).tolist()
    return found, expected
