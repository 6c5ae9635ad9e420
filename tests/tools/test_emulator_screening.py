"""Decode steps that screen the vocabulary, on the CPU: they choose the tokens of steps that multiply all rows."""

from collections.abc import Callable
from dataclasses import replace

import pytest
import torch

from pagedchat.ops.sampling.decode_state import DecodeState
from pagedchat.ops.whole_step.model import PersistentModel
from pagedchat.ops.whole_step.persistent_decode import PersistentDecode
from pagedchat.ops.whole_step.plan import PersistentShape, plan_persistent
from pagedchat.ops.whole_step.screened_head import screen_head
from tests.ops.whole_step import persistent_case
from tests.tools.emulator_case import needs_compiler
from tools.emulator.kernel import SHARED_LIMIT
from tools.emulator.ops import kernels_on_cpu

pytestmark = needs_compiler

HALF, BFLOAT = torch.float16, torch.bfloat16
MULTIPROCESSORS = 30
PLAIN = PersistentShape(192, 192, 3, 3, 64, persistent_case.BLOCK_SIZE, gated=False)
GATED = PersistentShape(192, 192, 3, 1, 64, persistent_case.BLOCK_SIZE, gated=True)
Change = Callable[[torch.Tensor], torch.Tensor]


def make_model(
    family: str, dtype: torch.dtype, vocab_size: int, monkeypatch: pytest.MonkeyPatch
) -> PersistentModel:
    monkeypatch.setitem(persistent_case.SHAPES, family, PLAIN if family == "opt" else GATED)
    monkeypatch.setattr(persistent_case, "NUM_LAYERS", 1)
    monkeypatch.setattr(persistent_case, "VOCAB_SIZE", vocab_size)
    return persistent_case.random_model(family, dtype)


def tokens_of_both(
    model: PersistentModel, state: DecodeState, *, seed: int = 1, num_tiles: int | None = None
) -> tuple[list[int], list[int], torch.Tensor]:
    """Tokens of a screened step and of one that is not, and the logits `[num_tokens, vocab_size]` of the latter."""
    num_tokens, vocab_size = len(state.token_ids), len(model.tensors.head)
    plan = plan_persistent(model.shape, num_tokens, 256, MULTIPROCESSORS, SHARED_LIMIT)
    assert plan is not None
    screened = plan.screened(model.shape, num_tokens, vocab_size, SHARED_LIMIT)
    assert screened is not None
    plan, screened = (replace(each, num_tiles=num_tiles or each.num_tiles) for each in (plan, screened))
    twin, caches = persistent_case.moved(state, "cpu"), persistent_case.moved(model, "cpu")
    logits = torch.empty(num_tokens, vocab_size, dtype=model.tensors.head.dtype)
    with kernels_on_cpu(seed=seed, num_multiprocessors=MULTIPROCESSORS):
        PersistentDecode(model, num_tokens, screened, screen_head(model.tensors.head, model.tensors.norm))(state)
        PersistentDecode(caches, num_tokens, plan)(twin, logits)
    assert torch.equal(state.positions, twin.positions)
    return state.token_ids.tolist(), twin.token_ids.tolist(), logits


@pytest.mark.parametrize(
    ("family", "dtype", "positions", "seed"),
    [("opt", BFLOAT, [40, 7], 1), ("llama", HALF, [20, -1], 2)],
)
def test_the_token_is_the_best_one(
    family: str, dtype: torch.dtype, positions: list[int], seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    model, state = make_model(family, dtype, 1003, monkeypatch), persistent_case.random_state(positions)
    found, expected, logits = tokens_of_both(model, state, seed=seed)
    assert found == expected
    assert found[0] == logits.argmax(dim=1)[0]


@pytest.mark.parametrize(("vocab_size", "num_tiles"), [(17, None), (9003, 4)])
def test_fewer_rows_than_thread_blocks_and_more_tiles_than_room(
    vocab_size: int, num_tiles: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    model, state = make_model("opt", HALF, vocab_size, monkeypatch), persistent_case.random_state([40])
    found, expected, _ = tokens_of_both(model, state, num_tiles=num_tiles)
    assert found == expected


CHANGES: dict[str, Change] = {
    "all rows equal": lambda head: head[:1].expand_as(head).contiguous(),
    "rows of zeros": torch.zeros_like,
    "most rows zeros": lambda head: head * (torch.arange(len(head))[:, None] % 7 == 3),
    "ties by rounding": lambda head: head[:1] + 1e-3 * head,
    "huge": lambda head: head * 3000,
    "tiny": lambda head: head * 1e-5,
    "rows of all sizes": lambda head: head * 10.0 ** -(torch.arange(len(head))[:, None] % 5),
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES.keys())
def test_heads_that_make_it_hard(change: Change, monkeypatch: pytest.MonkeyPatch) -> None:
    """With 4,003 equal rows a thread block has more candidates than its teams of warps gather at a time."""
    num_rows = 4003 if change is CHANGES["all rows equal"] else 1003
    model, state = make_model("opt", HALF, num_rows, monkeypatch), persistent_case.random_state([40])
    model = persistent_case.with_tensors(model, head=change(model.tensors.head).half())
    found, expected, logits = tokens_of_both(model, state)
    assert found == expected
    assert logits[0, found[0]] == logits.max()


@pytest.mark.parametrize("scale", [1e25, 1e-25])
def test_rows_at_the_ends_of_what_bfloat16_holds(scale: float, monkeypatch: pytest.MonkeyPatch) -> None:
    model, state = make_model("opt", BFLOAT, 1003, monkeypatch), persistent_case.random_state([40])
    found, expected, _ = tokens_of_both(
        persistent_case.with_tensors(model, head=(model.tensors.head.float() * scale).bfloat16()), state
    )
    assert found == expected


def test_inputs_that_digits_have_no_room_for(monkeypatch: pytest.MonkeyPatch) -> None:
    model, state = make_model("opt", HALF, 1003, monkeypatch), persistent_case.random_state([40])
    quantized = screen_head(model.tensors.head, model.tensors.norm)
    monkeypatch.setattr(f"{__name__}.screen_head", lambda *_args: replace(quantized, digit_scale=1e6))
    found, expected, _ = tokens_of_both(model, state)
    assert found == expected


def test_a_row_of_the_head_that_is_no_number_is_not_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    model, state = make_model("opt", HALF, 1003, monkeypatch), persistent_case.random_state([40])
    model.tensors.head[700, 3] = float("inf")
    found, expected, _ = tokens_of_both(model, state)
    assert found == expected
