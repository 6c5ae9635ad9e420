import time
from collections.abc import Iterator
from dataclasses import replace
from functools import lru_cache

import pytest
import torch

from pagedchat.ops.ranks import reduce_add_norm as module
from pagedchat.ops.ranks.reduce_add_norm import (
    MOST_BYTES,
    MOST_ROW_BYTES,
    MOST_ROWS,
    can_reduce,
    choose_hops,
    in_pieces,
    mailbox_bytes,
    reduce_add_norm,
    sum_in_order,
)
from tests.ops.paged_case import DEVICES
from tests.ops.products.small_batch_case import DTYPES, NORMS, error, exact_norm, make_norm, normal
from tests.ops.ranks.mailboxes_case import AllMailboxes, all_mailboxes


@lru_cache(maxsize=1)
def shared_mailboxes(size: int, device: str) -> AllMailboxes:
    """For one test after the other, each of which leaves them empty: to make half a gigabyte takes a while."""
    return all_mailboxes(size, device)


@pytest.fixture(scope="module", autouse=True)
def given_back() -> Iterator[None]:
    yield
    shared_mailboxes.cache_clear()


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("dtype", [*DTYPES, torch.float32], ids=str)
@pytest.mark.parametrize("kind", NORMS)
@pytest.mark.parametrize("size", [2, 4, 8])
def test_agrees_with_the_definition(size: int, kind: str | None, dtype: torch.dtype, device: str) -> None:
    boxes = shared_mailboxes(size, device)
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


def of_both_kinds(size: int, num_rows: int, width: int, *, device: str, seed: int) -> torch.Tensor:
    """Rows of all ranks. Some words of some ranks have all bits set, which is the mark of a place that is empty."""
    update = normal(size, num_rows, width, device=device, dtype=torch.float16, seed=seed)
    update.view(torch.int32)[seed % size, -1, 1] = -1
    return update


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("size", [2, 4, 8])
def test_one_hop_and_two_have_the_same_bits_in_any_order(size: int, device: str) -> None:
    """Launches of other numbers of rows, of other widths, with and without a stream and norms follow each other."""
    boxes = all_mailboxes(size, device)
    first = make_norm("rms", 8, device, torch.float16)
    for turn, num_rows in enumerate((3, 1, 5, 2, 2, 7, 1, 1, 3, 6, 4, 1)):
        width = (1032, 8, 264, 520)[turn % 4]
        hops = (2, 2, 1, 2, 1, 1, 2)[turn % 7]
        update = of_both_kinds(size, num_rows, width, device=device, seed=turn)
        total = sum_in_order(list(update))
        if turn % 3 == 0:
            summed = reduce_add_norm(update, None, None, boxes.mailboxes, hops=hops)
            assert torch.equal(summed.nan_to_num(9.0), total.expand_as(update).nan_to_num(9.0)), turn
            assert torch.equal(summed.view(torch.int16), summed[:1].expand_as(summed).view(torch.int16))
            continue
        hidden = normal(num_rows, width, device=device, dtype=torch.float16).expand(size, -1, -1).contiguous()
        norm = make_norm(NORMS[turn % len(NORMS)], width, device, torch.float16)
        of_update = first if width == 8 else None
        results = []
        for way in (hops, 3 - hops):
            stream = hidden.clone()
            normed = reduce_add_norm(
                update, stream, norm, boxes.mailboxes, update_norm=of_update, scale=0.5, hops=way
            )
            results.append(torch.stack([stream, normed]).view(torch.int16))
            assert torch.equal(results[-1], results[-1][:, :1].expand_as(results[-1])), turn
        assert torch.equal(*results), turn
        if of_update is None:
            wanted = hidden + (total * 0.5)
            assert torch.equal(stream.nan_to_num(9.0), wanted.nan_to_num(9.0)), turn
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
@pytest.mark.parametrize("hops", [1, 2])
def test_nobody_waits_for_a_rank_that_is_known_to_be_gone(hops: int) -> None:
    boxes = all_mailboxes(2, "cuda")
    alone = replace(boxes.mailboxes, turns=boxes.mailboxes.turns[:1])
    rows = normal(3, 768, device="cuda", dtype=torch.float16)
    began = time.monotonic()
    summed = reduce_add_norm(rows, None, None, alone, hops=hops)
    ended = torch.cuda.Event()
    ended.record()
    time.sleep(0.2)
    assert not ended.query()  # it waits
    alone.given_up.fill_(1)
    torch.cuda.synchronize()
    assert time.monotonic() - began < 2
    parts = rows.view(3, 3, 256)  # of three warps
    is_own = (torch.arange(3)[:, None] + torch.arange(3)) % 2 == 0
    wanted = rows if hops == 1 else (parts * is_own.to("cuda")[..., None]).view_as(rows)
    assert torch.equal(summed, wanted)
    assert torch.equal(reduce_add_norm(rows, None, None, alone, hops=hops), wanted)


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


def test_what_a_gpu_sums_so_has_bounds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "has_kernel", lambda _: True)
    rows = torch.zeros(256, 4096, dtype=torch.float16)
    assert [can_reduce(rows, size) for size in (2, 3, 4, 8)] == [True, False, True, True]
    assert not can_reduce(torch.zeros(256, 4104, dtype=torch.float16), 4)
    assert not can_reduce(torch.zeros(257, 8, dtype=torch.float16), 2)


def test_two_hops_are_taken_where_they_send_much_less() -> None:
    assert [choose_hops(num_bytes << 10, 4) for num_bytes in (8, 128, 143, 144, 2048)] == [1, 1, 1, 2, 2]
    assert choose_hops(MOST_BYTES, 2) == 1  # where they send as much
    assert [choose_hops(num_bytes << 10, 8) for num_bytes in (32, 41, 42)] == [1, 1, 2]


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
