"""All layers of few bits in one launch, by the emulator: in the orders of these seeds nobody waits for ever."""

import pytest
import torch

from pagedchat.ops.all_layers.plan import LayersShape
from tests.ops.all_layers.layers_case import FEW_BITS_SHAPES, random_model
from tests.ops.all_layers.test_streamed_layers import stepped
from tests.ops.whole_step.persistent_case import relative_error
from tests.tools.emulator_case import needs_compiler
from tools.emulator.ops import kernels_on_cpu

pytestmark = needs_compiler

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
    tensors, caches = random_model(shape, torch.float16, num_layers=1, biased=True)
    tensors.layers[0].norms_before[1].weight[5] *= factor
    return stepped((tensors, caches), [40], shape, 1, (num_blocks, 232_448), "cpu")[0]
