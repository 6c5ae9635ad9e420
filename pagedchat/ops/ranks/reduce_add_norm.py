"""A sum over ranks on several GPUs, added to a residual stream and normed, in one launch on each of them."""

from collections.abc import Iterator
from dataclasses import dataclass, field

import torch
from torch.nn import functional

from pagedchat.jit.launch import f32, get_kernel, i32
from pagedchat.jit.variant import Constant
from pagedchat.ops.common.checks import check_same_type, check_shape
from pagedchat.ops.common.launch import PIECE_BYTES, address, can_overlap, ceil_div, element_name, stream_of
from pagedchat.ops.common.norm import Norm, check_norm
from pagedchat.ops.products.add_norm import Update, add_norm, has_kernel
from pagedchat.ops.ranks.kernels import RANKS

NAME = "reduce_add_norm"
MOST_BYTES = 1 << 21
"""Of a sum that is made so. On H100s it is ahead of NCCL up to there, with two ranks and with four."""
_LEAST_SAVED = 216 << 10
"""Bytes that a rank sends less in two hops, from which on these are quicker than one. On four H100s one hop is
ahead at 128 KB by 2 %, two are at 256 KB by 14; with two ranks, which save nothing, one is up to 2 MB. Not measured
with eight."""
MOST_ROW_BYTES = 1 << 14
MOST_ROWS = 256


def _host_word() -> torch.Tensor:
    return torch.zeros(1, dtype=torch.int32, pin_memory=torch.cuda.is_available())


@dataclass(frozen=True, slots=True)
class Mailboxes:
    """Memory into which ranks store rows for each other; see `kernels/ranks/reduce_add_norm.cu`."""

    addresses: torch.Tensor
    """`[size]`, int64, on the device: where those of all ranks are, as this one reaches them."""
    turns: torch.Tensor
    """`[ranks here, MOST_ROWS]`, int32, on the device: zeros at first."""
    rank: int
    """The first one here; in real life there is one."""
    given_up: torch.Tensor = field(default_factory=_host_word)
    """`[1]`, int32, of the host, which GPUs see too: not 0 once a rank is known to be gone. From then on nobody
    waits for anybody, and sums mean nothing."""

    @property
    def size(self) -> int:
        """How many ranks there are."""
        return len(self.addresses)


def mailbox_bytes(size: int) -> int:
    """Bytes of one rank's mailbox, all of which have all bits set at first."""
    return 2 * MOST_ROWS * size * MOST_ROW_BYTES


def can_reduce(rows: torch.Tensor, size: int) -> bool:
    """Whether rows `[num_rows, width]` of `size` ranks are summed by the kernel."""
    num_bytes = rows.shape[-1] * rows.itemsize
    all_bytes = num_bytes * rows.shape[-2]
    few = rows.shape[-2] <= MOST_ROWS and all_bytes <= MOST_BYTES
    return few and size in RANKS and num_bytes <= MOST_ROW_BYTES and rows.is_contiguous() and has_kernel(rows)


def choose_hops(num_bytes: int, size: int) -> int:
    """In how many hops, 1 or 2, `size` ranks sum so many bytes: which is quicker.

    In one a rank sends what it has to each of the others. In two it sends every piece once, and the sums of its own
    share of them to each of the others.
    """
    in_one = num_bytes * (size - 1)
    in_two = 2 * in_one // size
    return 2 if in_one - in_two >= _LEAST_SAVED else 1


def reduce_add_norm(
    update: torch.Tensor,
    hidden: torch.Tensor | None,
    norm: Norm | None,
    mailboxes: Mailboxes,
    *,
    update_norm: Norm | None = None,
    scale: float = 1.0,
    overlap: bool = False,
    hops: int | None = None,
) -> torch.Tensor:
    """`hidden += scale * update_norm(sum of the updates of all ranks)`, and the norm of that.

    All ranks launch the same, in the same order; `can_reduce` says whether they can.

    Args:
        update: `[num_rows, width]`, contiguous; with all ranks in one launch, `[ranks, num_rows, width]`.
        hidden: like `update`, written; None: the sum alone is wanted.
        norm: of the sum with `hidden`; None: none.
        mailboxes: of all ranks.
        update_norm: of the updates' sum; None: none.
        scale: of what is added.
        overlap: the launch may begin before the kernel before it has ended, which makes `update`.
        hops: 1 or 2, the same bits; None: as `choose_hops` says.

    Returns:
        Like `update`: the norm; without `norm`, `hidden`; without `hidden`, the sum.

    Raises:
        ValueError: shapes or types that do not go together.
    """
    num_ranks_here = len(update) if update.dim() == 3 else 1
    flat = update.flatten(0, -2)
    check_shape("mailboxes.turns", mailboxes.turns, num_ranks_here, MOST_ROWS)
    if hidden is None and norm is not None:
        raise ValueError("norm is of a stream that is not there")
    if hidden is not None:
        check_shape("hidden", hidden, *update.shape)
        check_same_type("hidden", hidden, update)
    for each in (norm, update_norm):
        if each is not None:
            check_norm(each, flat)
    if not has_kernel(flat):
        return _by_torch(update, hidden, norm, update_norm, scale)
    result = hidden if hidden is not None and norm is None else torch.empty_like(update)
    constants: dict[str, Constant] = {
        "ELEMENT": element_name(update.dtype),
        "NORM": norm.constant if norm else 0,
        "RANKS": mailboxes.size,
        "HOPS": hops or choose_hops(update.nbytes // num_ranks_here, mailboxes.size),
    }
    if update_norm is not None:
        constants["UPDATE_NORM"] = update_norm.constant
    kernel = get_kernel(NAME, update.device.index, None, **constants)
    args = (
        result.data_ptr(),
        address(hidden),
        update.data_ptr(),
        address(norm.weight if norm else None),
        address(norm.bias if norm else None),
        address(update_norm.weight if update_norm else None),
        address(update_norm.bias if update_norm else None),
        mailboxes.addresses.data_ptr(),
        mailboxes.turns.data_ptr(),
        mailboxes.given_up.data_ptr(),
        i32(mailboxes.rank),
        i32(MOST_ROWS),
        i32(MOST_ROW_BYTES),
        i32(update.shape[-1]),
        f32(norm.eps if norm else 0.0),
        f32(update_norm.eps if update_norm else 0.0),
        f32(scale),
    )
    threads = 32 * ceil_div(update.shape[-1] * update.itemsize, 32 * PIECE_BYTES)
    grid = (len(flat) // num_ranks_here, num_ranks_here)
    together = num_ranks_here > 1  # which wait for each other
    overlap = overlap and not together and can_overlap(update.device)
    kernel.launch(grid, threads, args, stream=stream_of(update), overlap=overlap, cooperative=together)
    return result


def reduce_in_pieces(update: torch.Tensor, mailboxes: Mailboxes) -> torch.Tensor:
    """The sum of the updates of all ranks, whatever its size: a launch for every `MOST_BYTES`.

    All ranks call the same, in the same order.

    Args:
        update: of any shape, contiguous.
        mailboxes: of all ranks.

    Returns:
        Like `update`: the same bits as in one launch, for an element's do not depend on where it is.
    """
    flat = update.view(-1)
    missing = -len(flat) % (PIECE_BYTES // flat.itemsize)
    pieces = in_pieces(functional.pad(flat, (0, missing)) if missing else flat)
    summed = torch.cat([reduce_add_norm(piece, None, None, mailboxes).view(-1) for piece in pieces])
    return summed[: len(flat)].view(update.shape)


def in_pieces(flat: torch.Tensor) -> Iterator[torch.Tensor]:
    """All elements of `flat`, whole pieces of 16 bytes, one behind the other as rows that one launch takes."""
    width = MOST_ROW_BYTES // flat.itemsize
    num_rows = len(flat) // width
    if num_rows:
        yield from torch.split(flat[: num_rows * width].view(num_rows, width), MOST_BYTES // MOST_ROW_BYTES)
    if num_rows * width < len(flat):
        yield flat[num_rows * width :].view(1, -1)


def _by_torch(
    update: torch.Tensor, hidden: torch.Tensor | None, norm: Norm | None, update_norm: Norm | None, scale: float
) -> torch.Tensor:
    """Of all ranks in one tensor: what the kernel is held against."""
    if update.dim() != 3:
        raise ValueError("update is of one rank alone, on a CPU: expected [ranks, num_rows, width]")
    summed = sum_in_order(list(update))
    if hidden is None:
        return summed.expand_as(update).contiguous()
    added = add_norm(hidden[0].clone(), Update(summed, norm=update_norm, scale=scale), None)
    hidden.copy_(added)
    return hidden if norm is None else norm.apply(added).expand_as(update).contiguous()


def sum_in_order(parts: list[torch.Tensor]) -> torch.Tensor:
    """`(parts[0] + parts[1]) + ...`, in float32 at least, rounded once."""
    first, *others = parts
    total = first.float() if first.dtype in (torch.float16, torch.bfloat16) else first.clone()
    for part in others:
        total += part
    return total.to(first.dtype)
