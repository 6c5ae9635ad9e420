"""The shared memory that a whole step asks for is as much as its kernel lays out, and little more."""

import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from pagedchat.jit.variant import Constant
from pagedchat.ops.whole_step.persistent_decode import PersistentDecode
from pagedchat.ops.whole_step.plan import (
    MAX_SCREENED,
    PersistentPlan,
    PersistentShape,
    plan_clustered,
    plan_persistent,
)
from pagedchat.ops.whole_step.screened_head import screen_head
from tests.ops.room_case import assert_room
from tests.ops.whole_step.persistent_case import SHAPES, random_model, random_state

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="CUDA's packages are for Linux")

LIMITS = (132, 232_448)
MOST_SPARE = 2048
OPT, LLAMA = SHAPES["opt"], SHAPES["llama"]
UNGROUPED = PersistentShape(768, 2048, 12, 12, 64, 16, gated=True)
PLANS = [
    *(
        ("opt", OPT, tokens, plan_persistent(OPT, tokens, length, *LIMITS))
        for tokens, length in ((1, 2048), (2, 256), (3, 256), (4, 256))
    ),
    *(("llama", LLAMA, tokens, plan_persistent(LLAMA, tokens, 2048, *LIMITS)) for tokens in (1, 2, 4)),
    ("opt", OPT, 1, plan_clustered(OPT, 1, 256, *LIMITS)),
    ("llama", UNGROUPED, 1, plan_clustered(UNGROUPED, 1, 256, *LIMITS)),
]


class Launch:
    """Takes the place of a kernel, and notes what its launch has."""

    def __init__(self, **constants: Constant) -> None:
        self.constants = constants
        self.shared_bytes = 0

    def allow_shared(self, num_bytes: int) -> None:
        self.shared_bytes = num_bytes

    def launch(self, *_args: object, shared_bytes: int, **_options: Any) -> None:
        assert shared_bytes == self.shared_bytes <= LIMITS[1]


def launch_of(
    family: str, shape: PersistentShape, num_tokens: int, plan: PersistentPlan, patch: pytest.MonkeyPatch
) -> Launch:
    launches: list[Launch] = []

    def get_kernel(_stem: str, _device: object, **constants: Constant) -> Launch:
        launches.append(Launch(**constants))
        return launches[-1]

    patch.setattr("pagedchat.ops.whole_step.persistent_decode.get_kernel", get_kernel)
    patch.setattr("pagedchat.ops.whole_step.persistent_decode.on_cuda", lambda *_tensors: True)
    patch.setattr("pagedchat.ops.whole_step.persistent_decode.stream_of", lambda _tensor: 0)
    model, screens = random_model(family, torch.float16, shape), plan.screened_tiles > 0
    logits = None if screens else torch.empty(num_tokens, len(model.tensors.whole_head), dtype=torch.float16)
    quantized = screen_head(model.tensors.whole_head, model.tensors.last_norm) if screens else None
    PersistentDecode(model, num_tokens, plan, quantized)(random_state([5] * num_tokens), logits)
    return launches[0]


def test_shared_memory_has_room_for_what_the_kernel_lays_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rooms = []
    for family, shape, num_tokens, plan in PLANS:
        assert plan is not None
        screened = plan.screened(shape, num_tokens, 50_272, LIMITS[1])
        assert (screened is None) == (num_tokens > MAX_SCREENED)
        for each in (plan,) if screened is None else (plan, screened):
            launch = launch_of(family, shape, num_tokens, each, monkeypatch)
            rooms.append({**launch.constants, "ROOM": launch.shared_bytes, "MOST_SPARE": MOST_SPARE})
    assert_room(["whole_step/candidates.cuh", "whole_step/heads.cuh"], rooms, tmp_path)
