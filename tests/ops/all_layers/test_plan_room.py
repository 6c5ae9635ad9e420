"""The shared memory that all layers in one launch ask for is as much as the kernel lays out, and little more."""

import shutil
import sys
from pathlib import Path

import pytest

from pagedchat.jit.builder import KernelBuilder
from pagedchat.jit.cache import KernelCache
from pagedchat.jit.variant import Variant
from pagedchat.ops.all_layers.plan import LayersShape, plan_layers
from pagedchat.resources import resource_dir
from tests.ops.all_layers.layers_case import FEW_BITS_SHAPES, SHAPES

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="CUDA's packages are for Linux")

LIMITS = (132, 232_448)
MOST_SPARE = {True: 3072, False: 640}
"""Bytes, by whether weights are of few bits."""
WIDE = LayersShape(4096, 4096, 32, 8, 128, 16)
"""With eight units of the residual stream for some thread blocks."""
SOURCE = """
#include "all_layers/layer_memory.cuh"
static_assert(sizeof(Shared) <= ROOM && sizeof(Shared) > ROOM - MOST_SPARE, "the plan has another layout");
extern "C" __global__ void room() {}
"""


def test_shared_memory_has_room_for_what_the_kernel_lays_out(tmp_path: Path) -> None:
    shutil.copytree(resource_dir("kernels"), tmp_path / "kernels")
    (tmp_path / "kernels" / "room.cu").write_text(SOURCE, encoding="utf-8")
    variants = []
    for shape in (*SHAPES.values(), WIDE, *FEW_BITS_SHAPES.values()):
        for num_tokens, context_len in ((1, 300), (1, 2000), (2, 300), (4, 1000), (8, 300)):
            plan = plan_layers(shape, num_tokens, context_len, *LIMITS)
            if plan is None:
                assert shape.form.few or shape is WIDE
                continue
            room = {"ROOM": plan.shared_bytes(shape), "MOST_SPARE": MOST_SPARE[shape.form.few]}
            variants.append(Variant.of("room", ELEMENT="float16", **shape.constants, **plan.constants, **room))
    builder = KernelBuilder(tmp_path / "kernels", KernelCache(tmp_path / "cache"))
    assert len(variants) > 30
    for build in builder.build_all([(variant, "sm_90") for variant in variants]):
        assert build.cubin is not None, f"{build.variant}: {build.error}"
