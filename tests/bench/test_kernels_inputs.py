"""What the sections measure gives right results: with the torch versions here, with the kernels on a GPU."""

from importlib import import_module

import pytest
import torch

from pagedchat.bench.kernels import block_moves, merge, prefill, shared_prefix, token_moves, torch_peers
from pagedchat.bench.kernels.bandwidth import Limits
from pagedchat.bench.kernels.decode import measure_decode, split_calls
from pagedchat.bench.kernels.decode_inputs import DecodeInputs
from pagedchat.bench.kernels.figures import OURS, Bench, Figure
from pagedchat.bench.kernels.merge_inputs import MergeInputs
from pagedchat.bench.kernels.prefill_inputs import PrefillInputs
from pagedchat.bench.kernels.products import experts, invariant, quantized
from pagedchat.bench.kernels.products.shapes import ExpertsShape, LinearShape, QuantizedShape
from pagedchat.bench.kernels.shapes import (
    BlocksShape,
    DecodeShape,
    GatherShape,
    MergeShape,
    PrefillShape,
    PrefixShape,
    WriteShape,
)

DECODE = DecodeShape(3, 4, 2, 64, 100)
PREFILL = PrefillShape(64, 4, 2, 64)
MERGE = MergeShape(5, 4, 64)
PREFIX = PrefixShape(3, 4, 2, 64, 64, 20)
GATHER = GatherShape(128, 2, 64)
DECODED = WriteShape(5, 1, 2, 64)
PREFILLED = WriteShape(40, 20, 2, 64)
BLOCKS = BlocksShape(3, 2, 2, 64)
EXPERTS = ExpertsShape(9, 64, 32, 5, 3)
LINEAR = LinearShape(5, 64, 48)
QUANTIZED = [QuantizedShape(kind, group, 5, 64, 48) for kind, group in (("int8", 0), ("fp8", 0), ("int4", 32))]
ROUNDING, BFLOAT_ROUNDING = 2e-3, 1e-2


@pytest.fixture
def on_cpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "synchronize", lambda: None)
    for name in (
        "random_cache",
        "decode_inputs",
        "prefill_inputs",
        "merge_inputs",
        "block_moves",
        "token_moves",
        "shared_prefix",
        "products.experts",
        "products.invariant",
        "products.quantized",
    ):
        module = import_module(f"pagedchat.bench.kernels.{name}")
        for attribute, value in (("DEVICE", "cpu"), ("num_rotated_sets", lambda _: 2)):
            if hasattr(module, attribute):
                monkeypatch.setattr(module, attribute, value)


@pytest.mark.usefixtures("on_cpu")
def test_decode_inputs_over_blocks_apart_and_shared() -> None:
    apart = DecodeInputs.apart(DECODE)
    assert apart.block_tables.unique().numel() == apart.block_tables.numel() == 2 * 3 * 7
    assert apart.check(split_calls(apart)) < ROUNDING
    shared = DecodeInputs.over_one_prefix(PREFIX)
    assert shared.block_tables.shape == (2, 3, 4 + 2)
    assert (shared.block_tables[:, :1, :4] == shared.block_tables[:, :, :4]).all()
    assert shared.block_tables.unique().numel() == 2 * (4 + 3 * 2)
    assert shared.check(split_calls(shared)) < ROUNDING
    assert shared.check(shared_prefix._calls(shared, PREFIX)) < ROUNDING


@pytest.mark.usefixtures("on_cpu")
def test_a_result_that_leaves_something_out_is_noticed() -> None:
    inputs = DecodeInputs.apart(DECODE)
    assert not inputs.check([lambda: None]) < ROUNDING
    prompt = PrefillInputs(PREFILL)
    assert not prompt.check([lambda: None]) < ROUNDING


@pytest.mark.usefixtures("on_cpu")
def test_prefill_and_merge_inputs() -> None:
    prompt = PrefillInputs(PREFILL)
    assert prompt.check(prefill._calls(prompt)) < ROUNDING
    parts = MergeInputs(MERGE)
    assert parts.check([merge._call(part) for part in parts.sets]) < ROUNDING
    [peer] = torch_peers.merge(parts)
    assert peer.check(peer.prepare()) < ROUNDING


@pytest.mark.usefixtures("on_cpu")
def test_cache_operations_are_checked_bit_for_bit() -> None:
    for shape in (DECODED, PREFILLED):
        writes = token_moves.WriteInputs(shape)
        assert writes.slots.unique().numel() == 2 * shape.num_tokens
        assert writes.check(writes.calls()) == 0.0
        assert writes.check_torch(writes.torch_calls()) == 0.0
    pairs = block_moves.Pairs(BLOCKS, 2)
    kv_cache = torch.randn(2, 2, pairs.num_blocks, 2, 64, 16)
    copies = block_moves.copy_contender(OURS, block_moves.copy_blocks, kv_cache, pairs)
    assert copies.check(copies.prepare()) == 0.0
    assert copies.check([lambda: None]) == float("inf")
    swaps = block_moves.swap_contender(kv_cache, torch.zeros_like(kv_cache), pairs)
    assert swaps.check(swaps.prepare()) == 0.0


@pytest.mark.usefixtures("on_cpu")
def test_products_of_experts() -> None:
    inputs = experts.ExpertInputs(EXPERTS)
    assert inputs.experts.shape == (2, 9, 3)
    ways = [inputs.calls(), inputs.grouped_calls(), inputs.calls_by_expert()]
    assert [len(calls) for calls in ways] == [2, 2, 2]
    for calls in ways:
        assert inputs.check(calls) < BFLOAT_ROUNDING
        assert not inputs.check(calls[::-1]) < BFLOAT_ROUNDING
        assert not inputs.check([lambda: None]) < BFLOAT_ROUNDING
    had = [len(each.unique()) for each in inputs.experts]
    weights = 3 * 64 * 32 * 2 * sum(had) / 2
    assert inputs.moved_bytes == int(weights) + 2 * (9 * 64 + 27 * (2 * 32 + 64))
    assert EXPERTS.flops == 2 * 27 * 3 * 64 * 32


@pytest.mark.usefixtures("on_cpu")
def test_products_in_one_order() -> None:
    inputs = invariant.LinearInputs(LINEAR)
    for calls in (inputs.calls(), inputs.cublas_calls()):
        assert len(calls) == 2
        assert inputs.check(calls) < ROUNDING
        assert not inputs.check(calls[::-1]) < ROUNDING
    assert LINEAR.moved_bytes == 2 * (64 * 48 + 5 * (64 + 48))
    assert LINEAR.flops == 2 * 5 * 64 * 48


@pytest.mark.usefixtures("on_cpu")
@pytest.mark.parametrize("shape", QUANTIZED, ids=str)
def test_products_with_few_bits(shape: QuantizedShape) -> None:
    inputs = quantized.QuantizedInputs(shape)
    for calls in (inputs.calls(), inputs.cublas_calls()):
        assert len(calls) == 2
        assert inputs.check(calls) < ROUNDING
        assert not inputs.check(calls[::-1]) < ROUNDING
    assert shape.weight_bytes == inputs.weights[0].nbytes
    assert shape.moved_bytes == shape.weight_bytes + 2 * 5 * (64 + 48)


@pytest.mark.gpu
def test_every_section_measures_a_tiny_shape() -> None:
    bench = Bench(
        limits=Limits(copy=1000.0, to_host=50.0, from_host=50.0), peers=frozenset({"torch"}), say=lambda _: None
    )
    figures: list[Figure] = [
        *measure_decode(bench, [DECODE]),
        *prefill.measure_prefill(bench, [PREFILL]),
        *merge.measure_merge(bench, [MERGE]),
        *shared_prefix.measure_shared_prefix(bench, [PREFIX]),
        *token_moves.measure_writes(bench, [DECODED, PREFILLED]),
        *token_moves.measure_gather(bench, [GATHER]),
        *block_moves.measure_copies(bench, [BLOCKS]),
        *block_moves.measure_swaps(bench, [BLOCKS]),
        *experts.measure_experts(bench, [EXPERTS]),
        *invariant.measure_invariant(bench, [LINEAR]),
        *quantized.measure_quantized(bench, QUANTIZED),
    ]
    ours = [figure for figure in figures if figure.name == OURS]
    assert len(ours) == 15
    assert [figure.failed for figure in ours] == [None] * 15
    assert all(figure.us and figure.host_us for figure in ours)
