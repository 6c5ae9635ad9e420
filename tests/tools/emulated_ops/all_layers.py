"""All layers of a decode step in one launch, of a small model, whose rows are one stage of the ring."""

from functools import partial

import torch

from pagedchat.ops.all_layers.plan import plan_layers
from pagedchat.ops.all_layers.streamed_layers import StreamedLayers
from tests.ops.all_layers.layers_case import NUM_BLOCKS, SHAPES, random_model, random_state
from tests.tools.emulated_ops.op_case import NOTHING, OpCase, Results, in_types
from tools.emulator.kernel import SHARED_LIMIT

NUM_MULTIPROCESSORS = 6


def layers(dtype: torch.dtype, *, kind: str, positions: list[int], context_len: int, other: bool) -> Results:
    """Two steps over caches that are NaN where no sequence has a block."""
    shape = SHAPES[kind]
    model, caches = random_model(shape, dtype, num_layers=2, biased=other, normed_heads=other, rotary=other)
    state = random_state(positions)
    others = [block for block in range(NUM_BLOCKS) if block not in state.block_tables]
    for part in (part for cache in caches for part in cache):
        part[others] = NOTHING
    plan = plan_layers(shape, len(positions), context_len, NUM_MULTIPROCESSORS, SHARED_LIMIT)
    assert plan is not None
    launch = StreamedLayers(model, caches, plan)
    hidden = torch.randn(2, len(positions), shape.hidden).to(dtype)
    for step in hidden:
        launch(step, state)
    live = [row for row, position in enumerate(positions) if position >= 0]
    keys = {f"keys of layer {i}": cache[0] for i, cache in enumerate(caches)}
    values = {f"values of layer {i}": cache[1] for i, cache in enumerate(caches)}
    return {"rows": hidden[:, live], **keys, **values}


CASES: list[OpCase] = [
    *in_types(
        "streamed_layers",
        partial(layers, kind="small", positions=[20, -1], context_len=256, other=False),
        torch.float16,
    ),
]
