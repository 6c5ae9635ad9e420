"""A decode step in one launch, of a model of two small layers.

More of its shapes: test_emulator_kernels.py, test_emulator_clusters.py, test_emulator_screening.py.
"""

from functools import partial

import pytest
import torch

from pagedchat.ops.whole_step.persistent_decode import PersistentDecode
from pagedchat.ops.whole_step.plan import PersistentShape, plan_persistent
from tests.ops.whole_step import persistent_case
from tests.tools.emulated_ops.op_case import NOTHING, OpCase, Results, in_types
from tools.emulator.kernel import SHARED_LIMIT

NUM_MULTIPROCESSORS, VOCAB_SIZE = 28, 203


def step(dtype: torch.dtype, *, family: str, positions: list[int]) -> Results:
    """Over caches that are NaN where no sequence has a block. Two tokens may be as likely: logits are compared."""
    gated = family == "llama"
    shape = PersistentShape(192, 192, 3, 1 if gated else 3, 64, persistent_case.BLOCK_SIZE, gated=gated)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(persistent_case, "NUM_LAYERS", 2)
        patch.setattr(persistent_case, "VOCAB_SIZE", VOCAB_SIZE)
        model, state = persistent_case.random_model(family, dtype, shape), persistent_case.random_state(positions)
    others = [block for block in range(persistent_case.NUM_BLOCKS) if block not in state.block_tables]
    for cache in (cache for layer in model.caches for cache in layer):
        cache[others] = NOTHING
    plan = plan_persistent(shape, len(positions), 256, NUM_MULTIPROCESSORS, SHARED_LIMIT)
    assert plan is not None
    logits = torch.empty(len(positions), VOCAB_SIZE, dtype=dtype)
    PersistentDecode(model, len(positions), plan)(state, logits)
    live = [row for row, position in enumerate(positions) if position >= 0]
    assert state.token_ids[live].tolist() == logits[live].argmax(dim=1).tolist()
    keys = {f"keys of layer {i}": layer[0] for i, layer in enumerate(model.caches)}
    values = {f"values of layer {i}": layer[1] for i, layer in enumerate(model.caches)}
    moved_on = {"positions": state.positions, "seq_lens": state.seq_lens, "step": state.step}
    return {"logits": logits[live], **keys, **values, **moved_on}


CASES: list[OpCase] = [
    *in_types("persistent_decode", partial(step, family="opt", positions=[40]), torch.float16),
    *in_types("persistent_decode", partial(step, family="llama", positions=[20, -1]), torch.float16, about="gated"),
]
