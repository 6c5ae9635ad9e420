"""Whole decode steps of three and four sequences, on the CPU: what their parts compute, one after another."""

from dataclasses import dataclass, replace

import pytest
import torch

from pagedchat.ops.whole_step.persistent_decode import PersistentDecode
from pagedchat.ops.whole_step.plan import PersistentShape, plan_persistent
from tests.ops.whole_step import persistent_case
from tests.ops.whole_step.persistent_case import assert_same_caches, relative_error
from tests.tools.emulator_case import needs_compiler
from tools.emulator.kernel import SHARED_LIMIT
from tools.emulator.ops import kernels_on_cpu

pytestmark = needs_compiler

HALF, BFLOAT = torch.float16, torch.bfloat16
PLAIN = PersistentShape(192, 192, 3, 3, 64, persistent_case.BLOCK_SIZE, gated=False)
GROUPED = PersistentShape(192, 192, 3, 1, 64, persistent_case.BLOCK_SIZE, gated=True)
NUM_STEPS = 2
"""Both sets of what is published."""


@dataclass(frozen=True, slots=True)
class Case:
    """A step of several sequences, as a GPU of so many multiprocessors cuts it."""

    family: str
    shape: PersistentShape
    positions: list[int]
    num_multiprocessors: int
    seats: int
    num_splits: int = 1
    dtype: torch.dtype = HALF
    block_size: int = persistent_case.BLOCK_SIZE
    vocab_size: int = 203
    num_tiles: int | None = None
    """Instead of the plan's."""


CASES = {
    "three": Case("opt", PLAIN, [40, 9, 70], 33, seats=1),
    "three, grouped, padding": Case("llama", GROUPED, [20, -1, 41], 28, seats=1, dtype=BFLOAT),
    "four": Case("opt", PLAIN, [0, 31, 200, 17], 36, seats=1, vocab_size=2003, num_tiles=2),
    "four, two seats": Case("opt", PLAIN, [40, 9, 0, 70], 30, seats=2, dtype=BFLOAT),
    "four, two seats, two turns, padding": Case("opt", PLAIN, [130, 12, -1, 260], 30, seats=2, block_size=32),
    "four, two seats, grouped": Case("llama", GROUPED, [100, 5, 33, 97], 27, seats=2, block_size=8),
    "four, grouped, splits": Case("llama", GROUPED, [300, 12, 700, -1], 36, seats=1, num_splits=3),
}


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_a_step_of_several_sequences(case: Case, monkeypatch: pytest.MonkeyPatch) -> None:
    shape, num_tokens = replace(case.shape, block_size=case.block_size), len(case.positions)
    for name, value in (("NUM_LAYERS", 2), ("VOCAB_SIZE", case.vocab_size), ("BLOCK_SIZE", case.block_size)):
        monkeypatch.setattr(persistent_case, name, value)
    context_len = 1024 if case.num_splits > 1 else 64
    plan = plan_persistent(shape, num_tokens, context_len, case.num_multiprocessors, SHARED_LIMIT)
    assert plan is not None
    assert (plan.seats, plan.num_splits) == (case.seats, case.num_splits)
    plan = replace(plan, num_tiles=case.num_tiles or plan.num_tiles)
    model = persistent_case.random_model(case.family, case.dtype, shape)
    state, there = persistent_case.random_state(case.positions), persistent_case.moved(model, "cpu")
    decode = PersistentDecode(there, num_tokens, plan)
    live = [row for row, position in enumerate(case.positions) if position >= 0]
    tolerance = 4e-3 if case.dtype == HALF else 3e-2
    for _ in range(NUM_STEPS):
        twin = persistent_case.moved(state, "cpu")
        expected, found = torch.full((2, num_tokens, case.vocab_size), torch.nan, dtype=case.dtype)
        PersistentDecode(model, num_tokens, plan)(twin, expected)
        with kernels_on_cpu(seed=len(live), num_multiprocessors=case.num_multiprocessors):
            decode(state, found)
        assert relative_error(found[live], expected[live]) < tolerance
        assert torch.equal(state.token_ids[live], found[live].argmax(dim=1).int())
        assert torch.equal(state.positions, twin.positions)
        assert torch.equal(state.seq_lens, twin.seq_lens)
    slots = [
        (int(state.block_tables[row, position // case.block_size]), position % case.block_size)
        for row in live
        for position in range(case.positions[row], case.positions[row] + NUM_STEPS)
    ]
    assert_same_caches(there, model, slots, 2 * tolerance)
