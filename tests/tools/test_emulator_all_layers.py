"""All layers in one launch, by the emulator: in the orders of these seeds nobody waits for ever."""

import pytest
import torch

from pagedchat.ops.all_layers.plan import SETS, plan_layers
from pagedchat.ops.all_layers.shape import LayersShape
from pagedchat.ops.all_layers.streamed_layers import StreamedLayers
from tests.ops.all_layers.layers_case import BLOCK_SIZE, FEW_BITS_SHAPES, random_model, random_state
from tests.ops.all_layers.test_streamed_layers import stepped
from tests.ops.whole_step.persistent_case import relative_error
from tests.tools.emulator_case import needs_compiler
from tools.emulator.ops import kernels_on_cpu

pytestmark = needs_compiler

HALF, LIMIT = torch.float16, 232_448

SHAPES = [("int4 alone", 6, 1), ("int8", 12, 2), ("int8, values in int4", 6, 3), ("int4, values in int8", 20, 4)]
"""With as few thread blocks as find room, and a seed."""
FACTORS = {"alike": 1.0, "one of a run is large": 1000.0, "none is a number": float("nan")}
"""What one element behind the feed-forward's norm is multiplied by."""


@pytest.mark.parametrize(("kind", "num_blocks", "seed"), SHAPES, ids=[kind for kind, *_ in SHAPES])
@pytest.mark.parametrize("inputs", FACTORS)
def test_weights_of_few_bits_give_what_their_parts_give(kind: str, num_blocks: int, seed: int, inputs: str) -> None:
    shape = FEW_BITS_SHAPES[kind]
    expected = one_step(shape, num_blocks, FACTORS[inputs])
    with kernels_on_cpu(seed=seed, num_multiprocessors=num_blocks):
        found = one_step(shape, num_blocks, FACTORS[inputs])
    if inputs == "none is a number":
        assert found.isnan().all()
        assert expected.isnan().all()
    else:
        assert relative_error(found, expected) < 2e-3


def one_step(shape: LayersShape, num_blocks: int, factor: float) -> torch.Tensor:
    """Of a layer, `[1, 1, hidden]`."""
    tensors, caches = random_model(shape, HALF, num_layers=1, biased=True)
    tensors.layers[0].norms_before[1].weight[5] *= factor
    return stepped((tensors, caches), [40], shape, 1, (num_blocks, LIMIT), "cpu")[0]


@pytest.mark.parametrize("middle", [320, 2112, 4128], ids=["a stage", "a slot and a half", "two slots and a half"])
@pytest.mark.parametrize("positions", [[40], [40, -1], [3, 300, 16, 0], [15, 16, 17, 90, -1, 0, 50, 64]], ids=len)
def test_several_rows_of_16_bits_give_what_their_parts_give(middle: int, positions: list[int]) -> None:
    shape, num_blocks = LayersShape(192, middle, 4, 2, 64, BLOCK_SIZE), 20  # with two units of the stream, or one
    model = {"num_layers": 2, "normed_heads": True}
    expected, caches = stepped(random_model(shape, HALF, **model), positions, shape, 1, (num_blocks, LIMIT), "cpu")
    with kernels_on_cpu(seed=len(positions), num_multiprocessors=num_blocks):
        found, written = stepped(
            random_model(shape, HALF, **model), positions, shape, 1, (num_blocks, LIMIT), "cpu"
        )
    live = [row for row, position in enumerate(positions) if position >= 0]
    assert relative_error(found[:, live], expected[:, live]) < 3e-3
    for layer, wanted in zip(written, caches, strict=True):
        assert all(relative_error(*parts) < 3e-3 for parts in zip(layer, wanted, strict=True))


@pytest.mark.parametrize(("positions", "num_blocks"), [([40, 3], 5), ([3, 300, 16, 0], 30)], ids=str)
def test_all_places_are_marked_before_they_are_used_again(positions: list[int], num_blocks: int) -> None:
    """For the two layers to come, whose sets were used by layers before; what nobody publishes stays as it is."""
    shape = LayersShape(192, 320, 4, 2, 64, BLOCK_SIZE)
    tensors, caches = random_model(shape, HALF, num_layers=5)
    plan = plan_layers(shape, len(positions), 400, num_blocks, LIMIT)
    assert plan is not None
    expected = torch.full((plan.set_elements(shape),), -1, dtype=torch.int16)
    for begin, end in plan.empty_runs(shape):
        expected[begin:end] = 0
    layers = StreamedLayers(tensors, caches, plan)
    with kernels_on_cpu(seed=3, num_multiprocessors=num_blocks):
        layers(torch.randn(len(positions), shape.hidden).to(HALF), random_state(positions))
    done = int(layers._layers_done)
    used = layers._sets[[(done - 2) % SETS, (done - 1) % SETS]]
    assert (used != expected).sum() > 0.8 * (expected == -1).sum() * len(used)
    assert torch.equal(layers._sets[[done % SETS, (done + 1) % SETS]], expected.expand(2, -1))


@pytest.mark.parametrize("norm_kind", ["rms", "exact", "offset"])
@pytest.mark.parametrize("num_blocks", [5, 30], ids=["five units or four", "one unit or none"])
def test_norms_of_16_bits_are_right_however_large_the_stream_and_their_weights_are(
    norm_kind: str, num_blocks: int
) -> None:
    """Whose product is more than a float16 can say."""
    shape, positions = LayersShape(192, 320, 4, 2, 64, BLOCK_SIZE), [40, 3]
    model = {"num_layers": 2, "norm_kind": norm_kind, "norm_size": 3.0}
    rest = (positions, shape, 3, (num_blocks, LIMIT), "cpu", 15_000.0)
    expected, _ = stepped(random_model(shape, HALF, **model), *rest)
    assert expected.isfinite().all()
    assert 3 * expected.abs().max() > torch.finfo(HALF).max
    with kernels_on_cpu(seed=num_blocks, num_multiprocessors=num_blocks):
        found, _ = stepped(random_model(shape, HALF, **model), *rest)
    assert relative_error(found, expected) < 3e-3
