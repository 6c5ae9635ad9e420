"""The ranks of one model over process groups of torch: gloo between CPUs, NCCL between GPUs; and what is small,
between GPUs that reach each other's memory, by a kernel of our own.

The groups are this object's own, and none of them is torch's default one: an engine leaves alone what else a
program does with `torch.distributed`.
"""

import logging
from contextlib import suppress
from datetime import timedelta
from typing import Any

import torch
import torch.distributed

from pagedchat.distributed.mailboxes import SharedMailboxes
from pagedchat.distributed.nccl import Nccl
from pagedchat.errors import DeviceError, KernelError
from pagedchat.jit.launch import rehearses
from pagedchat.ops.common.norm import Norm
from pagedchat.ops.products.add_norm import Update, add_norm
from pagedchat.ops.ranks.reduce_add_norm import can_reduce, reduce_add_norm, reduce_in_pieces, sum_in_order

log = logging.getLogger(__name__)

dist: Any = torch.distributed
"""Its stubs lack half of what is there."""

_TO_MEET = timedelta(seconds=30)
"""For ranks to connect, once all of them are about to."""
_TIMEOUT = timedelta(days=1)
"""Of one call. Ranks wait for one that reads slowly; who does not answer at all is found out by `Workers`."""


class RankGroup:
    """See `ops.ranks.company.Ranks`.

    Sums by our kernel and on CPUs are made in the order of the ranks, in float32 at least; larger ones on GPUs in
    NCCL's order, which goes by how large they are. All ranks get the same bits.

    Args:
        rank, size: which one of how many.
        folder: of nobody else's, where they find each other.
        device: of this rank.
        shares_device: whether several ranks are on the same GPU, which NCCL does not do: then what is too large for
            the kernel goes by it all the same, in pieces.
        in_order: whether sums of any size are made in the order of the ranks, so that no row depends on others.

    Raises:
        RuntimeError: the others cannot be found.
        DeviceError: there is no way to make all sums in order.
    """

    def __init__(
        self,
        rank: int,
        size: int,
        folder: str,
        device: torch.device,
        *,
        shares_device: bool = False,
        in_order: bool = False,
    ) -> None:
        self.rank, self.size, self.device = rank, size, device
        store = dist.FileStore(f"{folder}/ranks", size)
        self._host = _gloo(dist.PrefixStore("host", store), rank, size)
        self._nccl: Nccl | None = None
        self._mailboxes: SharedMailboxes | None = None
        if device.type == "cuda":
            self._mailboxes = self._share_mailboxes()
            if not shares_device:
                self._nccl = Nccl(dist.PrefixStore("device", store), rank, size)
            if in_order and self._mailboxes is None:
                raise DeviceError(
                    f"batch_invariant takes sums in the order of the ranks, and {size} GPUs here have none.",
                    "Leave it out, or choose --tensor-parallel-size 2, 4 or 8 of GPUs that reach each other.",
                )
        self._in_pieces = self._mailboxes is not None and (in_order or self._nccl is None)
        """Whether sums that are too large for the kernel go by it all the same."""

    def sum(self, rows: torch.Tensor) -> torch.Tensor:
        """See `Ranks`."""
        if self._mailboxes is not None and can_reduce(rows, self.size):
            return reduce_add_norm(rows, None, None, self._mailboxes.reached)
        if self._mailboxes is not None and self._in_pieces:
            return reduce_in_pieces(rows, self._mailboxes.reached)
        if rehearses():
            return rows
        if self._nccl is not None:
            return self._nccl.sum(rows)
        return sum_in_order(self._gathered(rows)).to(rows.device)

    def add_norm(self, hidden: torch.Tensor, update: Update, norm: Norm | None) -> torch.Tensor:
        """See `Ranks`."""
        rows = update.rows if update.beside is None else update.rows + update.beside
        if self._mailboxes is None or not can_reduce(rows, self.size):
            return add_norm(hidden, Update(self.sum(rows), None, update.norm, update.scale), norm)
        return reduce_add_norm(
            rows,
            hidden,
            norm,
            self._mailboxes.reached,
            update_norm=update.norm,
            scale=update.scale,
            overlap=update.beside is None,
        )

    def side_by_side(self, columns: torch.Tensor) -> torch.Tensor:
        """See `Ranks`."""
        if self._in_pieces and self._nccl is None:  # each rank has zeros in the place of the others
            whole = columns.new_zeros(len(columns), self.size, columns.shape[1])
            whole[:, self.rank] = columns
            return self.sum(whole.flatten(1))
        if rehearses():
            return columns.repeat(1, self.size)
        if self._nccl is not None:
            return self._nccl.side_by_side(columns)
        return torch.cat(self._gathered(columns), dim=-1).to(columns.device)

    def least(self, numbers: list[int]) -> list[int]:
        """Of each number the least that any rank has."""
        least: list[int] = torch.stack(self._gathered(_int64(numbers))).amin(0).tolist()
        return least

    def finish(self) -> None:
        """Until the GPU has done all that it was given."""
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)

    def close(self) -> None:
        """Begin to leave the others, who may be gone: nobody in this process waits for them from now on, and sums
        that they are missing in mean nothing.

        NCCL only ends when all captured steps that call it are gone, which others see to: see `wait_closed`.
        """
        if self._mailboxes is not None:
            self._mailboxes.give_up()
        if self._nccl is not None:
            self._nccl.close()
        with suppress(Exception):
            self._host.abort()

    def wait_closed(self, seconds: float) -> bool:
        """Whether everything ends in time that `close` has begun to end."""
        return self._nccl is None or self._nccl.wait_closed(seconds)

    def _share_mailboxes(self) -> SharedMailboxes | None:
        """None where they cannot be reached, from one of the ranks on."""
        mailboxes = None
        try:
            mailboxes = SharedMailboxes(self.size, self.rank, self.device)
            handles = self._gathered(mailboxes.handle)
            mailboxes.reach(handles)
            is_there = True
        except KernelError as error:
            if mailboxes is None:
                self._gathered(torch.zeros_like(SharedMailboxes.NO_HANDLE))
            log.warning("GPUs do not reach each other's memory, and sums go by NCCL alone: %s", error)
            is_there = False
        return mailboxes if self.least([int(is_there)]) == [1] else None

    def _gathered(self, tensor: torch.Tensor) -> list[torch.Tensor]:
        """What all have, on the CPU."""
        own = tensor.detach().cpu().contiguous()
        given = [torch.empty_like(own) for _ in range(self.size)]
        self._host.allgather([given], [own]).wait()
        return given


def _int64(numbers: list[int]) -> torch.Tensor:
    return torch.tensor(numbers, dtype=torch.int64, device="cpu")


def _gloo(store: Any, rank: int, size: int) -> Any:
    """Over loopback alone: all ranks are on one host."""
    options = dist.ProcessGroupGloo._Options()
    options._devices = [dist.ProcessGroupGloo.create_device(hostname="127.0.0.1")]
    options._timeout = _TO_MEET
    group = dist.ProcessGroupGloo(store, rank, size, options)
    group._set_default_timeout(_TIMEOUT)
    return group
