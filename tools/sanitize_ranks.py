"""The kernel of sums over ranks for `sanitize_kernels`, which says how it is checked."""

# mypy: disable-error-code="misc"

import torch

from pagedchat.ops.common.norm import Norm
from pagedchat.ops.ranks.reduce_add_norm import MOST_ROWS, Mailboxes, mailbox_bytes, reduce_add_norm
from tools.sanitize_case import Tensors, on_both, random_tensor

ROWS = (1, 5, 16, 1, 5)
"""Of launches that follow each other and take places in turns."""


def rank_cases() -> list[bool]:
    """All ranks in one launch: a stream that goes on, what is added to it normed, and the sum alone."""
    return [_case(size, width) for size, width in ((2, 136), (4, 768), (8, 1024))]


def _case(size: int, width: int) -> bool:
    weight, first = random_tensor(width), random_tensor(width)
    updates = [random_tensor(size, num_rows, width) for num_rows in ROWS]
    streams = [random_tensor(num_rows, width).expand(size, -1, -1).contiguous() for num_rows in ROWS]

    def sums(t: Tensors) -> Tensors:
        norm, of_update = Norm("rms", t[0], None, 1e-5), Norm("rms", t[1], None, 1e-5)
        memory = torch.full((size, mailbox_bytes(size) // 4), -1, dtype=torch.int32, device=t[0].device)
        addresses = torch.tensor([box.data_ptr() for box in memory], dtype=torch.int64, device=t[0].device)
        turns = torch.zeros(size, MOST_ROWS, dtype=torch.int32, device=t[0].device)
        boxes, results = Mailboxes(addresses, turns, 0), []
        for update, hidden in zip(t[2 : 2 + len(ROWS)], t[2 + len(ROWS) :], strict=True):
            results += [reduce_add_norm(update, None, None, boxes), hidden]
            results.append(reduce_add_norm(update, hidden, norm, boxes))
            results.append(reduce_add_norm(update, hidden.clone(), None, boxes, update_norm=of_update, scale=0.5))
        return [*results, memory.eq(-1).all()[None].half()]  # and every place is empty again

    return on_both(f"reduce_add_norm {size} ranks", [weight, first, *updates, *streams], sums)
