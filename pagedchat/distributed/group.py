"""The ranks of one model over process groups of torch: gloo between CPUs, NCCL between GPUs.

The groups are this object's own, and none of them is torch's default one: an engine leaves alone what else
a program does with `torch.distributed`.
"""

from contextlib import suppress
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist

from pagedchat.ops.ranks.reduce_add_norm import sum_in_order

_TIMEOUT = timedelta(days=1)
"""Of one call. Ranks wait for one that reads slowly; who does not answer at all is found out by `Workers`."""


class RankGroup:
    """See `layers.ranks.Ranks`. Sums on CPUs are made in the order of the ranks, in float32 at least, so that they
    do not depend on a library's way of passing parts around; those on GPUs in NCCL's order.

    Args:
        rank, size: which one of how many.
        folder: of nobody else's, where they find each other.
        device: of this rank.
        shares_device: whether several ranks are on the same GPU, which NCCL does not do: they go through the CPU.

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
        if device.type == "cuda" and not shares_device:
            torch.cuda.set_device(device)
            self._nccl = _nccl(dist.PrefixStore("device", store), rank, size)

    def sum(self, rows: torch.Tensor) -> torch.Tensor:
        """See `Ranks`."""
        if self._nccl is not None:
            self._nccl.allreduce([rows]).wait()
            return rows
        return sum_in_order(self._gathered(rows)).to(rows.device)

    def side_by_side(self, columns: torch.Tensor) -> torch.Tensor:
        """See `Ranks`."""
        if self._nccl is not None:
            gathered = columns.new_empty(self.size, *columns.shape)
            self._nccl._allgather_base(gathered, columns.contiguous()).wait()
            return gathered.transpose(0, 1).flatten(1)
        return torch.cat(self._gathered(columns), dim=-1).to(columns.device)

    def least(self, numbers: list[int]) -> list[int]:
        """Of each number the least that any rank has."""
        least: list[int] = torch.stack(self._gathered(_int64(numbers))).amin(0).tolist()
        return least

    def close(self) -> None:
        """Leave the others, who may be gone; whoever waits for them in this process is told so by an error."""
        for group in (self._nccl, self._host):
            with suppress(Exception):
                group.abort()

    def _gathered(self, tensor: torch.Tensor) -> list[torch.Tensor]:
        """What all have, on the CPU."""
        own = tensor.detach().cpu().contiguous()
        given = [torch.empty_like(own) for _ in range(self.size)]
        self._host.allgather([given], [own]).wait()
        return given


def _int64(numbers: list[int]) -> torch.Tensor:
    return torch.tensor(numbers, dtype=torch.int64, device="cpu")


def _gloo(store: dist.Store, rank: int, size: int) -> Any:
    """Over loopback alone: all ranks are on one host."""
    options = dist.ProcessGroupGloo._Options()
    options._devices = [dist.ProcessGroupGloo.create_device(hostname="127.0.0.1")]
    options._timeout = _TIMEOUT
    return dist.ProcessGroupGloo(store, rank, size, options)


def _nccl(store: dist.Store, rank: int, size: int) -> Any:
    options = dist.ProcessGroupNCCL.Options()
    options._timeout = _TIMEOUT
    return dist.ProcessGroupNCCL(store, rank, size, options)
