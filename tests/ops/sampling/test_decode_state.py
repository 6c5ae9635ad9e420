from dataclasses import replace

import pytest
import torch

from pagedchat.ops.sampling.decode_state import advance_by_argmax, find_most_likely, slots_of
from pagedchat.ops.sampling.sample import NextDraw, draw_next
from pagedchat.ops.sampling.sample_rows import SampleRow, pack_rows
from pagedchat.ops.sampling.token_mask import TokenMasks, mask_tokens
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
def test_a_token_that_stays_is_neither_drawn_nor_counted(device: str) -> None:
    state = make_state([3, 8, 0], device)
    logits = normal(3, 64, device=device, dtype=torch.float32)
    advance_by_argmax(state, logits)
    likely, counts = state.token_ids.tolist(), torch.zeros(2, 64, dtype=torch.int16, device=device)
    others = torch.zeros(3, 64, device=device)
    others[:, 9] = 50.0
    rows = [SampleRow(stays=True), SampleRow(seed=1, counts_row=1), SampleRow(seed=2, counts_row=0, stays=True)]
    draw_next(state, others, pack_rows(rows).to(device), counts)
    check_moved_on(state, [3, 8, 0], [likely[0], 9, likely[2]])
    assert counts.nonzero().tolist() == [[1, 9]]


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("dtype", [*DTYPES, torch.float32], ids=str)
@pytest.mark.parametrize("vocab_size", [40, 1003, 50272])
def test_what_a_mask_allows_is_drawn_as_if_there_were_nothing_else(
    vocab_size: int, dtype: torch.dtype, device: str
) -> None:
    generator = torch.Generator().manual_seed(vocab_size)
    logits = normal(6, vocab_size, device=device, dtype=dtype, scale=3.0)
    num_words = -(-vocab_size // 32)
    bits = torch.randint(-(2**31), 2**31, (4, num_words), generator=generator).int()
    bits[2] = 0
    bits[2, num_words // 2] = 1 << 3  # one token alone
    masks = TokenMasks(*(each.to(device) for each in (torch.tensor([3, -1, 2, 0, -1, 3]).int(), bits)))
    allowed = logits.clone().float()
    rows = [5, 3, 2, 0]
    mask_tokens(allowed, torch.tensor(rows).int().to(device), masks.bits[masks.rows[rows].long()].contiguous())
    kinds = [SampleRow(temperature=0), SampleRow(seed=1), SampleRow(seed=2), SampleRow(top_p=0.9, seed=3)]
    kinds += [SampleRow(top_k=20, seed=4), SampleRow(repetition_penalty=1.4, counts_row=1, seed=5)]
    packed, tokens, counted = pack_rows(kinds).to(device), [], []
    for given, mask in ((logits, masks), (allowed, None)):
        state = make_state([3, 15, 0, 7, 8, 9], device)
        counts = torch.zeros(2, vocab_size, dtype=torch.int16, device=device)
        advance_by_argmax(state, given)
        draw = NextDraw(state, given, packed, counts, mask)
        for _ in range(3):  # each time the token of a penalised row is counted
            draw.launch()
            tokens.append(state.token_ids.tolist())
        counted.append(counts)
    assert tokens[:3] == tokens[3:]
    assert torch.equal(*counted)
    assert tokens[0][2] == num_words // 2 * 32 + 3


def test_masks_that_do_not_go_with_the_logits_are_named() -> None:
    state, logits, rows = make_state([0, 1], "cpu"), torch.zeros(2, 40), pack_rows([SampleRow()] * 2)
    which, bits = torch.zeros(2, dtype=torch.int32), torch.zeros(1, 2, dtype=torch.int32)
    for masks, name in (
        (TokenMasks(which[:1], bits), "mask rows"),
        (TokenMasks(which.long(), bits), "mask rows"),
        (TokenMasks(which, bits[:, :1]), "mask bits"),
        (TokenMasks(which, bits.float()), "mask bits"),
        (TokenMasks(which, torch.zeros(2, 2, dtype=torch.int32).t()), "mask bits"),
    ):
        with pytest.raises(ValueError, match=name):
            draw_next(state, logits, rows, None, masks)


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
