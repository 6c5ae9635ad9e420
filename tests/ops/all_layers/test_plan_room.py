"""The shared memory that all layers in one launch ask for is as much as the kernel lays out, and little more."""

import sys
from pathlib import Path

import pytest

from pagedchat.ops.all_layers.plan import plan_layers
from pagedchat.ops.all_layers.shape import LayersShape
from tests.ops.all_layers.layers_case import FEW_BITS_SHAPES, SHAPES
from tests.ops.room_case import assert_room

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="CUDA's packages are for Linux")

LIMITS = (132, 232_448)
MOST_SPARE = {True: 3072, False: 640}
"""Bytes, by whether weights are of few bits."""
WIDE = LayersShape(4096, 4096, 32, 8, 128, 16)
"""With eight units of the residual stream for some thread blocks."""


def test_shared_memory_has_room_for_what_the_kernel_lays_out(tmp_path: Path) -> None:
    rooms = []
    for shape in (*SHAPES.values(), WIDE, *FEW_BITS_SHAPES.values()):
        for num_tokens, context_len in ((1, 300), (1, 2000), (2, 300), (4, 1000), (8, 300)):
            plan = plan_layers(shape, num_tokens, context_len, *LIMITS)
            if plan is None:
                assert shape.form.few or shape is WIDE
                continue
            room = {"ROOM": plan.shared_bytes(shape), "MOST_SPARE": MOST_SPARE[shape.form.few]}
            rooms.append({"ELEMENT": "float16", **shape.constants, **plan.constants, **room})
    assert len(rooms) > 30
    assert_room(["all_layers/layer_memory.cuh"], rooms, tmp_path)
