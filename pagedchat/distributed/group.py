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
from pagedchat.errors import KernelError
from pagedchat.jit.launch import rehearses
from pagedchat.ops.common.norm import Norm
from pagedchat.ops.products.add_norm import Update, add_norm
from pagedchat.ops.ranks.reduce_add_norm import (
    MOST_BYTES,
    MOST_ROW_BYTES,
    MOST_ROWS,
    can_reduce,
    reduce_add_norm,
    sum_in_order,
)

log = logging.getLogger(__name__)

dist: Any = torch.distributed
"""Its stubs lack half of what is there."""

_TIMEOUT = timedelta(days=1)
"""Of one call. Ranks wait for one that reads slowly; who does not answer at all is found out by `Workers`."""


class RankGroup:
    """See `ops.ranks.company.Ranks`.

    Sums by our kernel and on CPUs are made in the order of the ranks, in float32 at least; larger ones on GPUs in
    NCCL's order. All ranks get the same bits.

    Args:
        rank, size: which one of how many.
        folder: of nobody else's, where they find each other.
        device: of this rank.
        shares_device: whether several ranks are on the same GPU, which NCCL does not do: then what the kernel does
            not do goes through the CPU.

    Raises:
        RuntimeError: the others cannot be found.
    """

    def __init__(
        self, rank: int, size: int, folder: str, device: torch.device, *, shares_device: bool = False
    ) -> None:
        self.rank, self.size, self.device = rank, size, device
        store = dist.FileStore(f"{folder}/ranks", size)
        self._host = _gloo(dist.PrefixStore("host", store), rank, size)
        self._nccl: Any = None
        self._mailboxes: SharedMailboxes | None = None
        if device.type == "cuda":
            self._mailboxes = self._share_mailboxes()
            if not shares_device:
                self._nccl = _nccl(dist.PrefixStore("device", store), rank, size)

    def sum(self, rows: torch.Tensor) -> torch.Tensor:
        """See `Ranks`."""
        if self._mailboxes is not None and can_reduce(rows, self.size):
            return reduce_add_norm(rows, None, None, self._mailboxes.reached)
        if rehearses():
            return rows
        if self._nccl is not None:
            self._nccl.allreduce([rows]).wait()
            return rows
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
        if rehearses():
            return columns.repeat(1, self.size)
        if self._nccl is not None:
            gathered = columns.new_empty(self.size, *columns.shape)
            self._nccl._allgather_base(gathered, columns.contiguous()).wait()
            return gathered.transpose(0, 1).flatten(1)
        by_kernel = self._side_by_side_as_sum(columns)
        return torch.cat(self._gathered(columns), dim=-1).to(columns.device) if by_kernel is None else by_kernel

    def least(self, numbers: list[int]) -> list[int]:
        """Of each number the least that any rank has."""
        least: list[int] = torch.stack(self._gathered(_int64(numbers))).amin(0).tolist()
        return least

    def close(self) -> None:
        """Leave the others, who may be gone; whoever waits for them in this process is told so by an error."""
        for group in (self._nccl, self._host):
            with suppress(Exception):
                group.abort()

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

    def _side_by_side_as_sum(self, columns: torch.Tensor) -> torch.Tensor | None:
        """By the kernel of sums, each rank having zeros in the place of the others; None where it is not for it."""
        num_rows, width = columns.shape
        if self._mailboxes is None:
            return None
        row_bytes = self.size * width * columns.itemsize
        pieces = next(
            (n for n in range(1, MOST_ROWS) if row_bytes % (16 * n) == 0 and row_bytes <= n * MOST_ROW_BYTES), 0
        )
        if not pieces or num_rows * pieces > MOST_ROWS or num_rows * row_bytes > MOST_BYTES:
            return None
        whole = columns.new_zeros(num_rows, self.size, width)
        whole[:, self.rank] = columns
        return self.sum(whole.view(num_rows * pieces, -1)).view(num_rows, -1)

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
    options._timeout = _TIMEOUT
    return dist.ProcessGroupGloo(store, rank, size, options)


def _nccl(store: Any, rank: int, size: int) -> Any:
    options = dist.ProcessGroupNCCL.Options()
    options._timeout = _TIMEOUT
    return dist.ProcessGroupNCCL(store, rank, size, options)
