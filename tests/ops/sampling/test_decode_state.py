from dataclasses import replace

import pytest
import torch

from pagedchat.ops.sampling.decode_state import advance_by_argmax, find_most_likely, slots_of
from pagedchat.ops.sampling.sample import draw_next
from pagedchat.ops.sampling.sample_rows import SampleRow, pack_rows
from tests.ops.paged_case import DEVICES
from tests.ops.products.small_batch_case import DTYPES, normal
from tests.ops.sampling.decode_state_case import check_moved_on, make_state


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
    chosen, counts = [9, 8, 7], torch.zeros(2, 64, dtype=torch.int16, device=device)
    logits = torch.zeros(3, 64, device=device)
    logits[range(3), chosen] = 50.0
    rows = pack_rows([SampleRow(seed=1, counts_row=1), SampleRow(temperature=0), SampleRow(top_k=3, seed=2)])
    draw_next(state, logits, rows.to(device), counts)
    check_moved_on(state, [3, -1, 0], chosen)
    assert counts.nonzero().tolist() == [[1, 9]]
    with pytest.raises(ValueError, match=r"logits has shape \[2, 64\], expected \[3, \*\]"):
        draw_next(state, logits[:2], rows.to(device), counts)


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
