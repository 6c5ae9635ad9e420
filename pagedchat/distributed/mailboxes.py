"""The memory into which GPUs store rows for each other, as several processes have it together. Knows no sums."""

from typing import ClassVar

import torch

from pagedchat.errors import KernelError
from pagedchat.jit.peer_memory import HANDLE_BYTES, OpenedMemory, PeerMemory
from pagedchat.ops.ranks.kernels import RANKS
from pagedchat.ops.ranks.reduce_add_norm import MOST_ROWS, Mailboxes, mailbox_bytes


class SharedMailboxes:
    """A rank's own mailbox, and its way to those of the others once it has their handles.

    Args:
        size: ranks.
        rank: this one.
        device: its GPU.

    Raises:
        KernelError: there is no memory for it, or no kernel for so many ranks.
    """

    NO_HANDLE: ClassVar[torch.Tensor] = torch.zeros(HANDLE_BYTES, dtype=torch.uint8)

    def __init__(self, size: int, rank: int, device: torch.device) -> None:
        if size not in RANKS:
            raise KernelError(f"There are kernels for {', '.join(map(str, RANKS))} ranks, and there are {size}.")
        self._rank, self._device = rank, device
        self._index = device.index or 0
        self._own = PeerMemory(mailbox_bytes(size), self._index)
        self._others: list[OpenedMemory] = []
        self.reached: Mailboxes
        """Those of all ranks."""

    @property
    def handle(self) -> torch.Tensor:
        """`[HANDLE_BYTES]`, uint8, on the CPU: for the others."""
        return torch.frombuffer(bytearray(self._own.handle), dtype=torch.uint8)

    def reach(self, handles: list[torch.Tensor]) -> None:
        """Find the way to those of all ranks, of which these are the handles.

        Raises:
            KernelError: there is none.
        """
        addresses = []
        for rank, handle in enumerate(handles):
            if rank == self._rank:
                addresses.append(self._own.address)
            else:
                self._others.append(OpenedMemory(bytes(handle.tolist()), self._index))
                addresses.append(self._others[-1].address)
        self.reached = Mailboxes(
            torch.tensor(addresses, dtype=torch.int64, device=self._device),
            torch.zeros(1, MOST_ROWS, dtype=torch.int32, device=self._device),
            self._rank,
        )

    def give_up(self) -> None:
        """Have nobody here wait for the others from now on: they are gone."""
        self.reached.given_up.fill_(1)
