from dataclasses import replace

import pytest
import torch

from pagedchat.ops.products.embed_tokens import embed_tokens
from pagedchat.ops.products.next_token import logits_argmax
from pagedchat.ops.sampling.decode_state import (
    DecodeState,
    advance_by_argmax,
    find_most_likely,
    replace_tokens,
    slots_of,
)
from tests.ops.paged_case import DEVICES
from tests.ops.products.small_batch_case import DTYPES, WIDTHS, allowed, error, exact_norm, make_norm, normal

HISTORY_LEN = 3


def make_state(positions: list[int], device: str, step: int = 4) -> DecodeState:
    def numbers(values: list[int]) -> torch.Tensor:
        return torch.tensor(values, dtype=torch.int32, device=device)

    history = torch.full((HISTORY_LEN, len(positions)), -7, dtype=torch.int32, pin_memory=device == "cuda")
    return DecodeState(
        token_ids=numbers([1] * len(positions)),
        positions=numbers(positions),
        seq_lens=numbers([position + 1 for position in positions]),
        block_tables=torch.zeros((len(positions), 2), dtype=torch.int32, device=device),
        step=numbers([step]),
        history=history,
        arrivals=numbers([0]),
    )


def check_moved_on(state: DecodeState, positions: list[int], token_ids: list[int], step: int = 4) -> None:
    if state.token_ids.is_cuda:
        torch.cuda.synchronize()
    moved = [position + (position >= 0) for position in positions]
    assert state.token_ids.tolist() == token_ids
    assert state.positions.tolist() == moved
    assert state.seq_lens.tolist() == [position + 1 for position in moved]
    assert state.step.tolist() == [step + 1]
    assert state.history[step % HISTORY_LEN].tolist() == token_ids
    assert state.history[(step + 1) % HISTORY_LEN].tolist() == [-7] * len(positions)
    assert state.arrivals.tolist() == [0]


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("dtype", [*DTYPES, torch.float32], ids=str)
@pytest.mark.parametrize("vocab_size", [8, 1003, 50272])
def test_first_of_the_largest_is_next(vocab_size: int, dtype: torch.dtype, device: str) -> None:
    positions = [3, -1, 0, 100]
    logits = normal(4, vocab_size, device=device, dtype=dtype)
    logits[0, 5], logits[0, 2] = 99, 99
    logits[2] = -torch.inf
    logits[2, vocab_size - 1] = -5
    state = make_state(positions, device)
    advance_by_argmax(state, logits)
    expected = logits.cpu().float().max(dim=1).indices.tolist()
    check_moved_on(state, positions, [2, expected[1], vocab_size - 1, expected[3]])


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("dtype", [*DTYPES, torch.float32], ids=str)
@pytest.mark.parametrize("vocab_size", [8, 1003, 50272])
def test_first_of_the_largest_is_found_without_a_state(vocab_size: int, dtype: torch.dtype, device: str) -> None:
    logits = normal(3, vocab_size, device=device, dtype=dtype)
    logits[0, 5], logits[0, 2] = 99, 99
    logits[2] = -torch.inf
    logits[2, vocab_size - 1] = -5
    tokens = torch.full((4,), -7, dtype=torch.int32, pin_memory=device == "cuda")
    find_most_likely(tokens[:3], logits)
    if device == "cuda":
        torch.cuda.synchronize()
    expected = logits.cpu().float().max(dim=1).indices.tolist()
    assert tokens.tolist() == [2, expected[1], vocab_size - 1, -7]


@pytest.mark.parametrize("device", DEVICES)
def test_other_tokens_take_the_place_of_the_most_likely_ones(device: str) -> None:
    state = make_state([3, -1, 0], device)
    advance_by_argmax(state, normal(3, 64, device=device, dtype=torch.float32))
    replace_tokens(state, torch.tensor([9, 8, 7], dtype=torch.int32, device=device))
    check_moved_on(state, [3, -1, 0], [9, 8, 7])


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("norm_kind", [None, "layer", "rms"])
def test_last_product_and_next_tokens(norm_kind: str | None, dtype: torch.dtype, device: str) -> None:
    for width in WIDTHS if device == "cuda" else [768]:
        for num_tokens in [1, 5, 8, 12, 32]:
            vocab_size = 2051  # no whole tiles; from a width of 2048 on the weight streams through shared memory
            rows = normal(num_tokens, width, device=device, dtype=dtype)
            weight = normal(vocab_size, width, device=device, dtype=dtype, scale=width**-0.5)
            norm = make_norm(norm_kind, width, device, dtype)
            positions = [7] * num_tokens
            positions[-1] = -1
            state = make_state(positions, device)
            logits = torch.full((num_tokens, vocab_size), float("nan"), dtype=dtype, device=device)
            best = torch.zeros(num_tokens, dtype=torch.int64, device=device)
            logits_argmax(state, logits, rows, weight, norm=norm, best=best)
            wanted = exact_norm(norm, rows.cpu().double()) @ weight.cpu().double().T
            assert error(logits, wanted) < allowed(dtype)
            check_moved_on(state, positions, logits.cpu().float().max(dim=1).indices.tolist())
            assert not bool(best.any())


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("dtype", [*DTYPES, torch.float32], ids=str)
@pytest.mark.parametrize("width", [768, 100])
def test_vectors_of_tokens_and_positions(width: int, dtype: torch.dtype, device: str) -> None:
    table = normal(50, width, device=device, dtype=dtype)
    places = normal(12, width, device=device, dtype=dtype)
    token_ids = torch.tensor([3, 49, 0], dtype=torch.int32, device=device)
    positions = torch.tensor([0, 9, -1], dtype=torch.int32, device=device)
    assert torch.equal(embed_tokens(table, token_ids, positions), table[[3, 49, 0]])
    both = embed_tokens(table, token_ids, positions, position_vectors=places, position_offset=2)
    assert torch.equal(both, table[[3, 49, 0]] + places[[2, 11, 2]])


@pytest.mark.parametrize("device", DEVICES)
def test_slots_of_positions(device: str) -> None:
    tables = torch.tensor([[5, 3], [1, 0], [9, 2]], dtype=torch.int32, device=device)
    positions = torch.tensor([17, -1, 15], dtype=torch.int32, device=device)
    assert slots_of(positions, tables, 16).tolist() == [3 * 16 + 1, -1, 9 * 16 + 15]


def test_wrong_arguments_are_named() -> None:
    state = make_state([0, 1], "cpu")
    with pytest.raises(ValueError, match=r"logits has shape \[3, 8\], expected \[2, \*\]"):
        advance_by_argmax(state, torch.zeros(3, 8))
    with pytest.raises(ValueError, match=r"positions is torch\.int64, expected torch\.int32"):
        advance_by_argmax(replace(state, positions=state.positions.long()), torch.zeros(2, 8))
    with pytest.raises(ValueError, match=r"tokens has shape \[2\], expected \[3\]"):
        find_most_likely(torch.zeros(2, dtype=torch.int32), torch.zeros(3, 8))
