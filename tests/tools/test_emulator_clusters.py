"""Decode steps in clusters of thread blocks on the CPU: the same as their parts one after another.

A context of up to 192 tokens is that of one thread block of a head, a longer one is shared by two.
"""

import shutil
from functools import partial
from pathlib import Path
from typing import NamedTuple

import pytest
import torch

from pagedchat.ops.sampling.decode_state import DecodeState
from pagedchat.ops.whole_step.model import PersistentModel
from pagedchat.ops.whole_step.persistent_decode import PersistentDecode
from pagedchat.ops.whole_step.plan import PersistentPlan, PersistentShape, plan_clustered
from pagedchat.ops.whole_step.screened_head import screen_head
from pagedchat.resources import resource_dir
from tests.ops.whole_step import persistent_case
from tests.ops.whole_step.persistent_case import assert_same_caches, relative_error, slots_from
from tests.tools.emulator_case import needs_compiler
from tools.emulator.kernel import SHARED_LIMIT, EmulatedKernel
from tools.emulator.ops import kernels_on_cpu

pytestmark = needs_compiler

HALF, BFLOAT = torch.float16, torch.bfloat16
TOLERANCES = {HALF: 4e-3, BFLOAT: 3e-2}
MULTIPROCESSORS = 36
"""Of which 32 are in clusters: three heads have four each, and nobody else has a head."""
VOCAB_SIZE = 1003


class Case(NamedTuple):
    """A step; `seed`: the order of warps."""

    family: str
    dtype: torch.dtype
    position: int
    seed: int

    def __str__(self) -> str:
        return f"{self.family}-{self.dtype}-{self.position}"


BLOCK_SIZES = {"opt": 16, "llama": 32}
CASES = [
    *(Case("opt", HALF, position, seed) for seed, position in enumerate((0, 191, 192, 383))),
    Case("llama", BFLOAT, 40, 1),
    Case("llama", BFLOAT, 250, 3),
]
Parts = tuple[PersistentModel, DecodeState, PersistentPlan]


def make_parts(case: Case, patch: pytest.MonkeyPatch) -> Parts:
    """Three layers of three heads."""
    shape = PersistentShape(192, 768, 3, 3, 64, BLOCK_SIZES[case.family], gated=case.family == "llama")
    patch.setitem(persistent_case.SHAPES, case.family, shape)
    patch.setattr(persistent_case, "NUM_LAYERS", 3)
    patch.setattr(persistent_case, "VOCAB_SIZE", VOCAB_SIZE)
    patch.setattr(persistent_case, "BLOCK_SIZE", shape.block_size)
    plan = plan_clustered(shape, 1, 384, MULTIPROCESSORS, SHARED_LIMIT)
    assert plan is not None
    model = persistent_case.random_model(case.family, case.dtype)
    state = persistent_case.random_state([case.position])
    ((block, offset),) = slots_from(state, 1)
    for keys, values in model.caches:  # what nobody has written yet may be anything
        keys[block, ..., offset + 1 :, :] = torch.inf
        values[block, ..., offset + 1 :] = torch.inf
    return model, state, plan


def worst_error(parts: Parts, twins: Parts, seed: int, num_steps: int = 1) -> float:
    """Of the logits of any step; `twins` make the same steps as a chain of ops."""
    (model, state, plan), (twin_model, twin, _) = parts, twins
    found, expected = torch.empty(2, 1, VOCAB_SIZE, dtype=model.tensors.head.dtype)
    step, step_of_twin = PersistentDecode(model, 1, plan), PersistentDecode(twin_model, 1, plan)
    errors = []
    for _ in range(num_steps):
        twin.token_ids.copy_(state.token_ids)  # tokens may differ where two are as likely
        step_of_twin(twin, expected)
        with kernels_on_cpu(seed=seed, num_multiprocessors=MULTIPROCESSORS) as emulated:
            step(state, found)
        assert (emulated.num_launches, state.token_ids.item()) == (1, found.argmax().item())
        errors.append(relative_error(found, expected))
    return max(errors)


def check_steps(case: Case, monkeypatch: pytest.MonkeyPatch, num_steps: int = 1) -> None:
    """Logits, what is left in the cache, and the state."""
    parts, twins = (make_parts(case, monkeypatch) for _ in range(2))
    slots = slots_from(parts[1], num_steps)
    assert worst_error(parts, twins, case.seed, num_steps) < TOLERANCES[case.dtype]
    assert_same_caches(parts[0], twins[0], slots, TOLERANCES[case.dtype])
    for name in ("positions", "seq_lens", "step"):
        assert torch.equal(getattr(parts[1], name), getattr(twins[1], name))


@pytest.mark.parametrize("case", CASES, ids=str)
def test_a_step_computes_what_its_parts_compute(case: Case, monkeypatch: pytest.MonkeyPatch) -> None:
    check_steps(case, monkeypatch)


def test_steps_follow_each_other_over_the_border(monkeypatch: pytest.MonkeyPatch) -> None:
    """Both sets of published numbers are met, one of them twice."""
    check_steps(Case("opt", HALF, 191, 4), monkeypatch, num_steps=3)


@pytest.mark.parametrize(
    "case",
    [Case("opt", HALF, 14, 0), Case("opt", HALF, 300, 1)],
    ids=str,
)
def test_a_screened_step_chooses_the_token_of_one_that_is_not(case: Case, monkeypatch: pytest.MonkeyPatch) -> None:
    (model, state, plan), (twin_model, twin, _) = (make_parts(case, monkeypatch) for _ in range(2))
    screened = plan.screened(model.shape, 1, VOCAB_SIZE, SHARED_LIMIT)
    assert screened is not None
    logits = torch.empty(1, VOCAB_SIZE, dtype=case.dtype)
    with kernels_on_cpu(seed=case.seed, num_multiprocessors=MULTIPROCESSORS):
        PersistentDecode(model, 1, screened, screen_head(model.tensors.head, model.tensors.norm))(state)
        PersistentDecode(twin_model, 1, plan)(twin, logits)
    assert state.token_ids.item() == twin.token_ids.item() == logits.argmax().item()
    assert torch.equal(state.positions, twin.positions)
    assert_same_caches(model, twin_model, [], 0.0)


def test_padding_leaves_state_and_cache_as_they_are(monkeypatch: pytest.MonkeyPatch) -> None:
    (model, state, plan), (model_before, before, _) = (
        make_parts(Case("opt", HALF, -1, 1), monkeypatch) for _ in range(2)
    )
    with kernels_on_cpu(num_multiprocessors=MULTIPROCESSORS):
        PersistentDecode(model, 1, plan)(state, torch.empty(1, VOCAB_SIZE, dtype=HALF))
    assert torch.equal(state.positions, before.positions)
    assert_same_caches(model, model_before, [], 0.0)


def test_a_share_of_one_token_that_is_left_out_shows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By a kernel that is wrong on purpose."""
    kernels = Path(shutil.copytree(resource_dir("kernels"), tmp_path / "kernels"))
    file, right = kernels / "whole_step" / "merge.cuh", "const MergedStates<SEAT_STATES> merged"
    text = file.read_text(encoding="utf-8")
    assert text.count(right) == 1
    file.write_text(text.replace(right, right.replace("SEAT_STATES", "NUM_WARPS")), encoding="utf-8")
    monkeypatch.setattr("tools.emulator.ops.EmulatedKernel", partial(EmulatedKernel, folder=kernels))
    for position, is_right in ((192, True), (193, False)):
        parts, twins = (make_parts(Case("opt", HALF, position, 1), monkeypatch) for _ in range(2))
        assert (worst_error(parts, twins, 1) < TOLERANCES[HALF]) == is_right
