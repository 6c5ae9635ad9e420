"""The kernel of sums over ranks for `sanitize_kernels`, which says how it is checked."""

# mypy: disable-error-code="misc"

from functools import partial

import torch

from pagedchat.ops.common.norm import Norm
from pagedchat.ops.ranks.reduce_add_norm import MOST_ROWS, Mailboxes, mailbox_bytes, reduce_add_norm
from tools.sanitize_case import Tensors, on_both, random_tensor

ROWS = (1, 5, 16, 1, 5)
"""Of launches that follow each other and take places in turns."""


def rank_cases() -> list[bool]:
    """All ranks in one launch: a stream that goes on, what is added to it normed, and the sum alone."""
    ways = ((2, 136, (1,)), (4, 768, (1, 2)), (4, 768, (2,)), (8, 1024, (2, 1)))
    return [_case(size, width, hops) for size, width, hops in ways]


def _case(size: int, width: int, hops: tuple[int, ...]) -> bool:
    weight, first = random_tensor(width), random_tensor(width)
    updates = [random_tensor(size, num_rows, width) for num_rows in ROWS]
    streams = [random_tensor(num_rows, width).expand(size, -1, -1).contiguous() for num_rows in ROWS]

    def sums(t: Tensors) -> Tensors:
        norm, of_update = Norm("rms", t[0], None, 1e-5), Norm("rms", t[1], None, 1e-5)
        memory = torch.full((size, mailbox_bytes(size) // 4), -1, dtype=torch.int32, device=t[0].device)
        addresses = torch.tensor([box.data_ptr() for box in memory], dtype=torch.int64, device=t[0].device)
        turns = torch.zeros(size, MOST_ROWS, dtype=torch.int32, device=t[0].device)
        boxes, results = Mailboxes(addresses, turns, 0), []
        for i, (update, hidden) in enumerate(zip(t[2 : 2 + len(ROWS)], t[2 + len(ROWS) :], strict=True)):
            add = partial(reduce_add_norm, update, mailboxes=boxes, hops=hops[i % len(hops)])
            results += [add(None, None), hidden, add(hidden, norm)]
            results.append(add(hidden.clone(), None, update_norm=of_update, scale=0.5))
        return [*results, memory.eq(-1).all()[None].half()]  # and every place is empty again

    name = f"reduce_add_norm {size} ranks, hops {' '.join(map(str, hops))}"
    return on_both(name, [weight, first, *updates, *streams], sums)
