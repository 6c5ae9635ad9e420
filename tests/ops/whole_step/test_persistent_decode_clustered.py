"""A whole decode step in clusters of thread blocks: the same as its parts, launch after launch."""

from collections.abc import Callable

import pytest
import torch

from pagedchat.ops.whole_step.model import PersistentModel
from pagedchat.ops.whole_step.persistent_decode import PersistentDecode
from pagedchat.ops.whole_step.plan import PersistentPlan, PersistentShape, plan_clustered
from pagedchat.ops.whole_step.screened_head import screen_head
from tests.ops.whole_step.persistent_case import (
    SHAPES,
    VOCAB_SIZE,
    assert_same_caches,
    assert_steps_of_parts,
    gpu_limits,
    moved,
    random_model,
    random_state,
    slots_from,
    some_steps,
    with_tensors,
)

pytestmark = pytest.mark.gpu

MODELS = {
    "opt": SHAPES["opt"],
    "llama": PersistentShape(768, 1536, 12, 12, 64, 16, gated=True),
    "llama, 8 warps": PersistentShape(768, 2048, 12, 12, 64, 16, gated=True),
}
POSITIONS = [
    *((name, position) for name in ("opt", "llama") for position in (0, 14, 31, 300, 383, 384, 385, 500, 765)),
    *(("llama, 8 warps", position) for position in (40, 255, 256, 257, 509)),
]
"""A thread block attends to 384 tokens with 12 warps and to 256 with 8; the last ones reach the longest context."""
DTYPES = pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
Change = Callable[[torch.Tensor], torch.Tensor]
CHANGES: dict[str, Change] = {
    "as it is": lambda head: head,
    "all rows equal": lambda head: head[:1].expand_as(head).contiguous(),
    "rows of zeros": torch.zeros_like,
    "ties by rounding": lambda head: head[:1] + 1e-3 * head,
    "rows of all sizes": lambda head: head * 10.0 ** -(torch.arange(len(head))[:, None] % 5),
}


def make_model(name: str, dtype: torch.dtype) -> tuple[PersistentModel, PersistentPlan]:
    """On the CPU."""
    num_multiprocessors, shared_limit = gpu_limits()
    plan = plan_clustered(MODELS[name], 1, 256, num_multiprocessors, shared_limit)
    if plan is None:
        pytest.skip("this GPU has no room for it")
    return random_model(name.partition(",")[0], dtype, MODELS[name]), plan


def screened_steps(model: PersistentModel, plan: PersistentPlan) -> PersistentDecode:
    screened = plan.screened(model.shape, 1, len(model.tensors.whole_head), gpu_limits()[1])
    assert screened is not None
    return PersistentDecode(
        moved(model, "cuda:0"), 1, screened, screen_head(model.tensors.whole_head, model.tensors.last_norm)
    )


@DTYPES
@pytest.mark.parametrize(("name", "position"), POSITIONS)
def test_it_computes_what_its_parts_compute(name: str, position: int, dtype: torch.dtype) -> None:
    model, plan = make_model(name, dtype)
    assert_steps_of_parts(model, random_state([position]), plan, 3)


@pytest.mark.parametrize("position", [40, 500])
@pytest.mark.parametrize("name", MODELS)
def test_it_writes_the_slot_of_its_token_and_no_others(name: str, position: int) -> None:
    model, plan = make_model(name, torch.float16)
    state, there = random_state([position]), moved(model, "cuda:0")
    slots = slots_from(state, 1)
    some_steps(there, moved(state, "cuda:0"), plan, 1)
    some_steps(model, state, plan, 1)
    assert_same_caches(there, model, slots, 4e-3)


@pytest.mark.parametrize("position", [300, 700])
def test_the_same_step_gives_the_same_bits(position: int) -> None:
    model, plan = make_model("opt", torch.float16)
    there, state = moved(model, "cuda:0"), random_state([position])
    first, *others = (some_steps(moved(there, "cuda:0"), moved(state, "cuda:0"), plan, 20) for _ in range(5))
    assert all(all(map(torch.equal, first, other)) for other in others)


@DTYPES
@pytest.mark.parametrize(("name", "position"), [("opt", 14), ("opt", 375), ("llama", 700), ("llama, 8 warps", 250)])
def test_a_screened_step_chooses_the_same_tokens(name: str, position: int, dtype: torch.dtype) -> None:
    model, plan = make_model(name, dtype)
    there, state = moved(model, "cuda:0"), moved(random_state([position]), "cuda:0")
    screened, full, twin = screened_steps(there, plan), PersistentDecode(there, 1, plan), moved(state, "cuda:0")
    logits = torch.empty(1, VOCAB_SIZE, dtype=dtype, device="cuda:0")
    for _ in range(16):  # within the blocks of the shortest
        screened(twin)
        full(state, logits)
        assert torch.equal(twin.token_ids, state.token_ids)
        assert torch.equal(twin.positions, state.positions)


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES.keys())
def test_heads_that_make_it_hard(change: Change) -> None:
    model, plan = make_model("opt", torch.float16)
    torch.manual_seed(0)
    rows = torch.randn(20_003, MODELS["opt"].hidden) / MODELS["opt"].hidden ** 0.5
    there = moved(with_tensors(model, head=change(rows).half()), "cuda:0")
    state = moved(random_state([40]), "cuda:0")
    twin, screened = moved(state, "cuda:0"), screened_steps(there, plan)
    screened(twin)
    (logits,) = some_steps(there, state, plan, 1)
    assert twin.token_ids.item() == state.token_ids.item()
    assert logits[0, int(twin.token_ids)] == logits.max()
