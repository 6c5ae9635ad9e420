import time
from dataclasses import replace

import pytest
import torch

from pagedchat.ops.ranks import reduce_add_norm as module
from pagedchat.ops.ranks.reduce_add_norm import (
    MOST_BYTES,
    MOST_ROW_BYTES,
    MOST_ROWS,
    can_reduce,
    in_pieces,
    mailbox_bytes,
    reduce_add_norm,
    sum_in_order,
)
from tests.ops.paged_case import DEVICES
from tests.ops.products.small_batch_case import DTYPES, NORMS, error, exact_norm, make_norm, normal
from tests.ops.ranks.mailboxes_case import all_mailboxes


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("dtype", [*DTYPES, torch.float32], ids=str)
@pytest.mark.parametrize("kind", NORMS)
@pytest.mark.parametrize("size", [2, 4, 8])
def test_agrees_with_the_definition(size: int, kind: str | None, dtype: torch.dtype, device: str) -> None:
    boxes = all_mailboxes(size, device)
    for width, num_rows in ((768, 3), (4096, 1), (768, 1), (768, 16)):
        norm = make_norm(kind, width, device, dtype)
        hidden = normal(num_rows, width, device=device, dtype=dtype).expand(size, -1, -1).contiguous()
        update = normal(size, num_rows, width, device=device, dtype=dtype, seed=4)
        total = sum_in_order(list(update))
        before = hidden.clone()
        normed = reduce_add_norm(update, hidden, norm, boxes.mailboxes)
        assert torch.equal(hidden, before + total)
        assert error(normed[0], exact_norm(norm, hidden[0].cpu().double())) < 2 * torch.finfo(dtype).eps
        assert torch.equal(normed, normed[:1].expand_as(normed))
        assert torch.equal(reduce_add_norm(update, None, None, boxes.mailboxes), total.expand_as(update))
    assert boxes.are_empty


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("first", NORMS[1:])
def test_what_is_added_may_be_normed_and_scaled(first: str, device: str) -> None:
    boxes, dtype = all_mailboxes(2, device), torch.float16
    norm, of_update = make_norm("rms", 136, device, dtype), make_norm(first, 136, device, dtype)
    hidden = normal(5, 136, device=device, dtype=dtype).expand(2, -1, -1).contiguous()
    update = normal(2, 5, 136, device=device, dtype=dtype, seed=4)
    wanted = exact_norm(of_update, update.double().sum(0).cpu()) * 0.6 + hidden[0].cpu().double()
    reduce_add_norm(update, hidden, norm, boxes.mailboxes, update_norm=of_update, scale=0.6)
    assert error(hidden[1], wanted) < 3 * torch.finfo(dtype).eps


@pytest.mark.gpu
def test_nobody_waits_for_a_rank_that_is_known_to_be_gone() -> None:
    boxes = all_mailboxes(2, "cuda")
    alone = replace(boxes.mailboxes, turns=boxes.mailboxes.turns[:1])
    rows = normal(3, 768, device="cuda", dtype=torch.float16)
    began = time.monotonic()
    summed = reduce_add_norm(rows, None, None, alone)
    ended = torch.cuda.Event()
    ended.record()
    time.sleep(0.2)
    assert not ended.query()  # it waits
    alone.given_up.fill_(1)
    torch.cuda.synchronize()
    assert time.monotonic() - began < 2
    assert torch.equal(summed, rows)
    assert torch.equal(reduce_add_norm(rows, None, None, alone), rows)


def test_sums_are_made_in_the_order_of_the_ranks() -> None:
    parts = [torch.tensor([value]) for value in (1.0, 1e8, -1e8)]
    assert sum_in_order(parts).item() == 0.0  # and not 1, as from the other end
    halves = [torch.tensor([value], dtype=torch.float16) for value in (2048.0, 1.0, 1.0)]
    assert sum_in_order(halves).item() == 2050.0  # rounded once


def test_what_is_summed_so_has_bounds() -> None:
    rows = torch.zeros(MOST_ROWS, 8)
    assert not can_reduce(rows, 2)  # on a CPU there is no kernel
    assert mailbox_bytes(2) == 16 << 20
    assert MOST_BYTES == 2 << 20


def test_what_is_sent_has_bounds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "has_kernel", lambda _: True)
    rows = torch.zeros(256, 4096, dtype=torch.float16)
    assert [can_reduce(rows, size) for size in (2, 3, 4, 8)] == [True, False, True, False]
    assert can_reduce(rows[:109], 8)
    assert not can_reduce(rows[:110], 8)
    assert not can_reduce(torch.zeros(257, 8, dtype=torch.float16), 2)


@pytest.mark.parametrize("length", [4, 4096, 4096 * 16 + 8, 4096 * 40, 4096 * 33 + 4])
def test_what_is_larger_goes_in_pieces(length: int) -> None:
    flat = torch.arange(length, dtype=torch.float32)
    pieces = list(in_pieces(flat))
    assert torch.equal(torch.cat([piece.flatten() for piece in pieces]), flat)
    for piece in pieces:
        assert piece.is_contiguous()
        assert len(piece) <= MOST_ROWS
        assert piece.shape[1] * piece.itemsize <= MOST_ROW_BYTES
        assert piece.nbytes <= MOST_BYTES


def test_wrong_arguments_are_named() -> None:
    boxes = all_mailboxes(2).mailboxes
    with pytest.raises(ValueError, match="update is of one rank alone"):
        reduce_add_norm(torch.zeros(3, 8), None, None, replace(boxes, turns=boxes.turns[:1]))
    with pytest.raises(ValueError, match=r"mailboxes\.turns has shape \[2, 256\], expected \[3, 256\]"):
        reduce_add_norm(torch.zeros(3, 1, 8), None, None, boxes)
    with pytest.raises(ValueError, match="norm is of a stream that is not there"):
        reduce_add_norm(torch.zeros(2, 1, 8), None, make_norm("rms", 8, "cpu", torch.float32), boxes)
    with pytest.raises(ValueError, match=r"hidden has shape \[2, 1, 16\], expected \[2, 1, 8\]"):
        reduce_add_norm(torch.zeros(2, 1, 8), torch.zeros(2, 1, 16), None, boxes)
