"""All layers in one launch: the same as their parts one after another, launch after launch."""

from dataclasses import replace
from typing import Any

import pytest
import torch

from pagedchat.ops.all_layers.plan import plan_layers
from pagedchat.ops.all_layers.shape import LayersShape
from pagedchat.ops.all_layers.streamed_layers import StreamedLayers, is_aligned
from pagedchat.ops.products.model_tensors import FeedForward, Product
from pagedchat.ops.quantized.weight import QuantizedWeight
from tests.ops.all_layers.layers_case import BLOCK_SIZE, FEW_BITS_SHAPES, SHAPES, random_model, random_state
from tests.ops.whole_step.persistent_case import gpu_limits, moved, relative_error

KINDS = {
    "qwen2.5": {"biased": True},
    "llama": {},
    "qwen3": {"normed_heads": True},
    "small": {"rotary": False},
    "small, heads of 128": {"biased": True, "normed_heads": True},
}
"""What else each of `SHAPES` has."""


def in_parts(shape: LayersShape, dtype: torch.dtype, kind: str, positions: list[int], steps: int) -> torch.Tensor:
    """On the CPU."""
    return stepped(random_model(shape, dtype, **KINDS[kind]), positions, shape, steps, (132, 232_448), "cpu")[0]


def stepped(model, positions, shape, steps, limits, device, size=1.0):  # type: ignore[no-untyped-def]
    """What comes out of each step, `[steps, num_tokens, hidden]`, and the caches behind them, on the CPU.

    What goes in is about `size`."""
    plan = plan_layers(shape, len(positions), max(positions) + steps, *limits)
    assert plan is not None
    tensors, caches = moved(model, device)
    state = moved(random_state(positions), device)
    layers = StreamedLayers(tensors, caches, plan)
    results = []
    torch.manual_seed(9)
    for _ in range(steps):
        hidden = (size * torch.randn(len(positions), shape.hidden)).to(tensors.whole_head.dtype).to(device)
        layers(hidden, state)
        results.append(hidden.cpu())
        live = state.positions >= 0
        state.positions[live] += 1
        state.seq_lens[live] += 1
    return torch.stack(results), [[part.cpu() for part in cache] for cache in caches]


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
def test_on_a_cpu_its_parts_run(dtype: torch.dtype) -> None:
    results = in_parts(SHAPES["small"], dtype, "small", [40, -1], 2)
    assert results.isfinite().all()


def test_on_a_cpu_parts_of_few_bits_are_those_of_the_floats_that_they_stand_for() -> None:
    shape = FEW_BITS_SHAPES["int4 alone"]
    tensors, caches = random_model(shape, torch.float16)
    whole = [
        replace(
            layer,
            qkv=as_floats(layer.qkv),
            out=as_floats(layer.out),
            feed=FeedForward(as_floats(layer.up), as_floats(layer.down)),
        )
        for layer in tensors.layers
    ]
    of_floats = replace(tensors, layers=whole), [tuple(part.clone() for part in cache) for cache in caches]
    found, expected = (
        stepped(model, [40], shape, 2, (132, 232_448), "cpu")[0] for model in ((tensors, caches), of_floats)
    )
    assert relative_error(found, expected) < 3e-3


def as_floats(product: Product) -> Product:
    assert isinstance(product.weight, QuantizedWeight)
    return Product(product.weight.dequantized(torch.float16), product.bias)


def test_scales_that_start_between_16_bytes_are_noticed() -> None:
    tensors, caches = random_model(FEW_BITS_SHAPES["int8"], torch.float16, num_layers=2)
    assert is_aligned(tensors, caches)
    last = tensors.layers[-1]
    weight = last.down.weight
    assert isinstance(weight, QuantizedWeight)
    longer = torch.cat((weight.scales[:1], weight.scales))
    odd = replace(last, feed=replace(last.fed, down=Product(replace(weight, scales=longer[1:]))))
    assert not is_aligned(replace(tensors, layers=[tensors.layers[0], odd]), caches)


@pytest.mark.gpu
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
@pytest.mark.parametrize(
    "positions",
    [
        [0], [31], [256], [1000], [390, -1], [600, 601, 7, -1], [15, 16, 17, 300, -1, 0, 250, 64],
    ],
    ids=str,
)  # fmt: skip
def test_it_computes_what_its_parts_compute(kind: str, dtype: torch.dtype, positions: list[int]) -> None:
    assert_as_its_parts(SHAPES[kind], dtype, positions, **KINDS[kind])


@pytest.mark.gpu
@pytest.mark.parametrize("kind", FEW_BITS_SHAPES)
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
@pytest.mark.parametrize("positions", [[0], [256], [1000]], ids=str)
def test_weights_of_few_bits_give_what_their_parts_give(
    kind: str, dtype: torch.dtype, positions: list[int]
) -> None:
    assert_as_its_parts(FEW_BITS_SHAPES[kind], dtype, positions, biased=True, normed_heads="fp8" in kind)


def assert_as_its_parts(shape: LayersShape, dtype: torch.dtype, positions: list[int], **kinds: Any) -> None:
    """On a GPU, what comes out of some steps and lies in the caches behind them."""
    steps = 3
    model = random_model(shape, dtype, **kinds)
    found, found_caches = stepped(model, positions, shape, steps, gpu_limits(), "cuda:0")
    expected, caches = stepped(model, positions, shape, steps, gpu_limits(), "cpu")
    tolerance = 3e-3 if dtype == torch.float16 else 2e-2
    live = [row for row, position in enumerate(positions) if position >= 0]
    for result, wanted in zip(found, expected, strict=True):
        assert relative_error(result[live], wanted[live]) < tolerance
    tables = random_state(positions).block_tables
    slots = [
        (int(tables[row, position // BLOCK_SIZE]), position % BLOCK_SIZE)
        for row in live
        for position in range(positions[row], positions[row] + steps)
    ]
    for layer, reference in zip(found_caches, caches, strict=True):
        for cache, wanted in zip(layer, reference, strict=True):
            for block, offset in slots:
                slot = (block, ..., offset, slice(None)) if cache.dim() == 5 else (block, ..., offset)
                assert relative_error(cache[slot], wanted[slot]) < tolerance
                cache[slot] = wanted[slot]
            assert torch.equal(cache, wanted)  # no others are written


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
@pytest.mark.parametrize("norm_kind", ["exact", "offset"])
@pytest.mark.parametrize("positions", [[31], [15, 16, 17, 300, -1, 0, 250, 64]], ids=len)
def test_norms_of_other_kinds_whose_weights_are_more_than_one(
    dtype: torch.dtype, norm_kind: str, positions: list[int]
) -> None:
    assert_as_its_parts(SHAPES["qwen2.5"], dtype, positions, norm_kind=norm_kind, norm_size=1.3)


@pytest.mark.gpu
def test_the_same_steps_give_the_same_bits() -> None:
    shape = SHAPES["qwen2.5"]
    model = random_model(shape, torch.float16, biased=True)
    first, second = (stepped(model, [300, 7], shape, 5, gpu_limits(), "cuda:0")[0] for _ in range(2))
    assert torch.equal(first, second)
