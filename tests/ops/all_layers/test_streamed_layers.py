"""All layers in one launch: the same as their parts one after another, launch after launch."""

import pytest
import torch

from pagedchat.ops.all_layers.plan import LayersShape, plan_layers
from pagedchat.ops.all_layers.streamed_layers import StreamedLayers
from tests.ops.all_layers.layers_case import BLOCK_SIZE, SHAPES, random_model, random_state
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


def stepped(model, positions, shape, steps, limits, device):  # type: ignore[no-untyped-def]
    """What comes out of each step, `[steps, num_tokens, hidden]`, and the caches behind them, on the CPU."""
    plan = plan_layers(shape, len(positions), max(positions) + steps, *limits)
    assert plan is not None
    tensors, caches = moved(model, device)
    state = moved(random_state(positions), device)
    layers = StreamedLayers(tensors, caches, plan)
    results = []
    torch.manual_seed(9)
    for _ in range(steps):
        hidden = torch.randn(len(positions), shape.hidden).to(tensors.whole_head.dtype).to(device)
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
    shape, steps = SHAPES[kind], 3
    model = random_model(shape, dtype, **KINDS[kind])
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
def test_the_same_steps_give_the_same_bits() -> None:
    shape = SHAPES["qwen2.5"]
    model = random_model(shape, torch.float16, biased=True)
    first, second = (stepped(model, [300, 7], shape, 5, gpu_limits(), "cuda:0")[0] for _ in range(2))
    assert torch.equal(first, second)
