"""Mailboxes of all ranks in one process, on one device."""

from dataclasses import dataclass

import torch

from pagedchat.ops.ranks.reduce_add_norm import MOST_ROWS, Mailboxes, mailbox_bytes


@dataclass(frozen=True, slots=True)
class AllMailboxes:
    """Those of every rank, as one launch has them all."""

    memory: torch.Tensor
    """`[size, words]`, int32."""
    mailboxes: Mailboxes

    @property
    def are_empty(self) -> bool:
        least, most = self.memory.aminmax()
        return int(least) == int(most) == -1


def all_mailboxes(size: int, device: str = "cpu") -> AllMailboxes:
    memory = torch.full((size, mailbox_bytes(size) // 4), -1, dtype=torch.int32, device=device)
    addresses = torch.tensor([box.data_ptr() for box in memory], dtype=torch.int64, device=device)
    turns = torch.zeros(size, MOST_ROWS, dtype=torch.int32, device=device)
    return AllMailboxes(memory, Mailboxes(addresses, turns, 0))
